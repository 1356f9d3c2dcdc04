"""Ends responses that were cancelled, or whose gateway has stopped."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, NotFound, PayloadTooLarge
from servicekit.principal import Principal

from gateway.domain.response_log import Entry
from gateway.domain.responses import Stored
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.response_runs.partial import FAILED, last_event, output_of
from gateway.response_runs.peers import Peers

_log = structlog.get_logger(__name__)
_MAX_ATTEMPTS = 20
_CLOCK_SLACK_SECONDS = 15.0
"""The maximum difference between the clocks of two gateways."""
GATEWAY_STOPPED: dict[str, Any] = {"code": "server_error", "message": "The gateway that answered has stopped."}


class Ending:
    """Ends responses on behalf of the gateway that answers.

    First, an entry in the log prevents the answering gateway from writing more. Then the stored response gets its
    final state, if it has none. The last event is rendered from the stored state and appended to the log.

    Args:
        store: Stores the responses.
        log: Stores the events of the responses.
        peers: The live gateways.
        timeout: Maximum seconds that a client waits for an answer.
    """

    def __init__(self, store: ResponseStore, log: ResponseLog, peers: Peers, *, timeout: float) -> None:
        self._store, self._log, self._peers = store, log, peers
        self._timeout = timeout

    async def end_if_stopped(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """End a response as failed if its gateway has stopped, or the time for its answer is over.

        Return the response. Background responses remain unchanged, because the queue redelivers their jobs.
        """
        if not stored.runs or stored.object.get("background"):
            return stored
        last = await self._log.last(principal, stored.id, deadline)
        if not self._is_abandoned(stored, last):
            return stored
        return await self.end(principal, stored.id, FAILED, deadline, GATEWAY_STOPPED) or stored

    async def end_if_abandoned(self, principal: Principal, name: str, last: Entry, reads_stored: bool) -> None:
        """End a response as failed if nothing more is written to its log and its gateway has stopped.

        Args:
            principal: The owner of the response.
            name: The id of the response.
            last: The last entry of the log.
            reads_stored: Whether to read the stored response, too. It shows that the response has ended without its
                last event, or that the time for an answer is over.
        """
        deadline = Deadline.after(self._timeout)
        if self._peers.has_stopped(last.writer):
            await self.end(principal, name, FAILED, deadline, GATEWAY_STOPPED)
            return
        stored = await self._store.read(principal, name, deadline) if reads_stored else None
        if stored is not None and (not stored.runs or self._is_abandoned(stored, last)):
            await self.end(principal, name, FAILED, deadline, GATEWAY_STOPPED)

    def _is_abandoned(self, stored: Stored, last: Entry | None) -> bool:
        if stored.object.get("background"):
            return False
        if last is not None and self._peers.has_stopped(last.writer):
            return True
        return time.time() - float(stored.object["created_at"]) > self._timeout + _CLOCK_SLACK_SECONDS

    async def end(
        self,
        principal: Principal,
        name: str,
        status: str,
        deadline: Deadline,
        error: dict[str, Any] | None = None,
    ) -> Stored | None:
        """End a response and return it.

        If the response has already ended, its stored state remains unchanged. Return None if it was deleted.

        Args:
            principal: The owner of the response.
            name: The id of the response.
            status: The final status.
            deadline: The deadline.
            error: The error of a failed response.

        Raises:
            Conflict: All attempts met a concurrent change of the log.
        """
        writer = self._peers.writer()
        for _ in range(_MAX_ATTEMPTS):
            events, last = await self._read_events(principal, name, deadline)
            if last is not None and last.deleted:
                return None
            position = 0 if last is None else last.position
            number = len(events)
            try:
                if last is None or not last.ended:
                    fence = Entry(writer, number, number - 1)
                    position = await self._log.append(principal, name, fence, position, deadline)
                stored = await self._store_final_state(principal, name, status, error, events, deadline)
                if stored is None or (last is not None and last.ended):
                    return stored
                final = last_event(stored, number)
                entry = Entry(writer, number, number, final, ended=True)
                try:
                    await self._log.append(principal, name, entry, position, deadline)
                except PayloadTooLarge:
                    entry = replace(entry, data=b"")
                    await self._log.append(principal, name, entry, position, deadline)
            except Conflict:
                continue  # the answer continued, or another gateway ends it
            _log.info("a response was ended", response=name, status=stored.status)
            return stored
        raise Conflict(f"{name} cannot be ended at the moment. Try again.", resource=name)

    async def last_event(self, principal: Principal, name: str, number: int) -> bytes:
        """Render the last event of an ended response from the stored response.

        Raises:
            NotFound: The response was deleted.
        """
        stored = await self._store.read(principal, name, Deadline.after(self._timeout))
        if stored is None:
            raise NotFound("The response was deleted.", resource=name)
        return last_event(stored, number)

    async def _read_events(
        self, principal: Principal, name: str, deadline: Deadline
    ) -> tuple[Sequence[bytes], Entry | None]:
        """Return the events in a log and its last entry."""
        entries = await self.read_entries(principal, name, deadline)
        events = [event for entry in entries for _, event in entry.events()]
        return events, entries[-1] if entries else None

    async def read_entries(self, principal: Principal, name: str, deadline: Deadline) -> list[Entry]:
        """Return the entries of a log."""
        entries: list[Entry] = []
        while found := await self._log.read(principal, name, entries[-1].position if entries else 0, deadline):
            entries += found
        return entries

    async def _store_final_state(
        self,
        principal: Principal,
        name: str,
        status: str,
        error: dict[str, Any] | None,
        events: Sequence[bytes],
        deadline: Deadline,
    ) -> Stored | None:
        """Set the final state of a stored response if it has none. Return the response."""
        while True:
            stored = await self._store.read(principal, name, deadline)
            if stored is None or not stored.runs:
                return stored
            response = {**stored.object, "status": status, "error": error, "output": output_of(events)}
            if await self._store.replace(principal, replace(stored, object=response), deadline):
                return replace(stored, object=response)

"""Reads, follows, cancels and deletes stored responses, with access checks."""

from collections.abc import AsyncGenerator

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest, NotFound
from servicekit.principal import Principal

from gateway.dialects.responses.continuation import missing
from gateway.domain.responses import RESPONSE, Stored, is_id
from gateway.frontends.profiles import Frontend
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.response_runs.access import Access
from gateway.response_runs.ending import Ending
from gateway.response_runs.feed import Feeds
from gateway.response_runs.partial import CANCELLED
from gateway.server.running_calls import RunningCalls

_log = structlog.get_logger(__name__)
_HEARTBEAT = b": \n\n"


class ResponseReading:
    """Reads, follows, cancels and deletes stored responses.

    Args:
        store: Stores the responses.
        log: Stores the events of the responses.
        ending: Ends responses whose gateway has stopped.
        access: Checks access to source documents.
        calls: The running answers at all gateways.
        heartbeat: Seconds of silence after which a stream gets a heartbeat.

    Attributes:
        feeds: Reads the logs.
    """

    def __init__(
        self,
        store: ResponseStore,
        log: ResponseLog,
        ending: Ending,
        access: Access,
        calls: RunningCalls,
        *,
        heartbeat: float,
    ) -> None:
        self._store, self._log, self._ending, self._access = store, log, ending, access
        self.feeds = Feeds(log, ending.end_if_abandoned, ending.last_event)
        self._calls, self._heartbeat = calls, heartbeat

    async def find(self, principal: Principal, frontend: Frontend, name: str, deadline: Deadline) -> Stored:
        """Return the current state of a response.

        Raises:
            NotFound: The reader has no response with this id, or may not see one of its source documents.
        """
        found = await self._store.read(principal, name, deadline) if is_id(name, RESPONSE) else None
        if found is None:
            raise missing(name, "response_id")
        if frontend.hides_revoked and found.sources:
            reader = frontend.principal_for(principal, filter_requested=False)
            if not await self._access.allows(reader, found, deadline):
                raise missing(name, "response_id")
        return await self._ending.end_if_stopped(principal, found, deadline)

    async def stream(self, principal: Principal, stored: Stored, after: int) -> AsyncGenerator[bytes, None]:
        """Return a generator of the current and future events of a response.

        Args:
            principal: The owner of the response.
            stored: The response.
            after: The number of the client's last event; -1: the client has no event.

        Raises:
            InvalidRequest: The events are not stored, or are no longer stored.
        """
        events = self.feeds.read(principal, stored.id, after, self._heartbeat, has_ended=not stored.runs)
        # Read the first events now, because an error can be an HTTP status only before the first byte is sent.
        try:
            first = await anext(events, None)
        except NotFound:
            message = "stream: the events of this response are not stored. Get the response without `stream`."
            raise InvalidRequest(message, field="stream") from None
        except BaseException:
            await events.aclose()
            raise
        return _lines(first, events, stored.id)

    def follow(self, principal: Principal, name: str) -> AsyncGenerator[bytes, None]:
        """Yield all current and future events of an accepted response."""
        return _lines(None, self.feeds.read(principal, name, -1, self._heartbeat), name)

    async def cancel(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """Cancel a response on any gateway and return it. A response that has already ended remains unchanged.

        Raises:
            NotFound: The response was deleted meanwhile.
        """
        if not stored.runs:
            return stored
        found = await self._ending.end(principal, stored.id, CANCELLED, deadline)
        await self.stop(principal, stored.id)
        if found is None:
            raise missing(stored.id, "response_id")
        return found

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """Delete a response and its events, and stop its answer.

        Raises:
            NotFound: The reader has no response with this id.
        """
        if not is_id(name, RESPONSE) or not await self._store.delete(principal, name, deadline):
            raise missing(name, "response_id")
        # No gateway can write to a deleted log.
        await self._log.delete(principal, name, deadline)
        await self.stop(principal, name)

    async def stop(self, principal: Principal, name: str) -> None:
        """Stop the answer of a response that has ended or was deleted."""
        await self._calls.cancel(call_name(principal, name))


def call_name(principal: Principal, name: str) -> str:
    """Return the name of a response's answer in `RunningCalls`."""
    return f"{principal.tenant}/{principal.owner}/{name}"


async def _lines(
    first: bytes | None, events: AsyncGenerator[bytes, None], name: str
) -> AsyncGenerator[bytes, None]:
    try:
        if first is not None:
            yield first or _HEARTBEAT
        async for data in events:
            yield data or _HEARTBEAT
    except CausewayError as error:
        _log.warning("a stream of a response broke off", response=name, error=error.message)
    finally:
        await events.aclose()

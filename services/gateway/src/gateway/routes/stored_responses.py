"""Reads the responses and conversations that a request continues, and stores complete answers."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.principal import Principal

from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.responses import continuation
from gateway.dialects.responses.continuation import missing
from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.domain import Batch, Done
from gateway.domain.responses import (
    MAX_CHAIN_LENGTH,
    MAX_ITEMS,
    RESPONSE,
    ContinuedData,
    Item,
    Stored,
    container_ids,
)
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.response_runs.peers import Peers
from gateway.response_runs.run import Continue, ResumePoint, Run

_log = structlog.get_logger(__name__)
_MAX_CONCURRENT_READS = 16
_MAX_TRIES = 3
_STORE_SECONDS = 5.0


class StoredResponses:
    """Continues and stores responses and conversations.

    Args:
        store: Stores responses and conversations.
        log: Stores the events of responses.
        peers: Generates the names of this gateway's writers.
    """

    def __init__(self, store: ResponseStore, log: ResponseLog, peers: Peers) -> None:
        self._store = store
        self._log = log
        self._peers = peers

    async def recall(self, request: ChatRequest, deadline: Deadline) -> ChatRequest:
        """Return a request with the earlier items that it continues.

        Raises:
            NotFound: A named response or conversation does not exist, or belongs to another user or front end.
            InvalidRequest: A member is invalid, or the front end does not store responses.
            Unavailable: The store cannot be reached. An answer without the earlier items would be wrong.
        """
        requested = continuation.read(request.body, request.frontend.responses)
        continuation.check_policy(request.frontend.responses, requested)
        if not requested.continues:
            return replace(request, continued=ContinuedData(store=requested.store)) if requested.store else request
        principal, profile = request.principal, request.frontend.name
        items: tuple[Item, ...] = ()
        chain: tuple[str, ...] = ()
        if requested.previous:
            field = "previous_response_id"
            previous = await self._find(principal, requested.previous, profile, field, deadline)
            chain = (*previous.chain, previous.id)
            if len(chain) > MAX_CHAIN_LENGTH:
                message = f"{field}: a chain may have at most {MAX_CHAIN_LENGTH} responses. Start a new one."
                raise InvalidRequest(message, field=field)
            earlier = await self._find_all(principal, previous.chain, profile, field, deadline)
            items = tuple(item for stored in (*earlier, previous) for item in stored.all_items)
        if requested.conversation:
            known = await self._find(principal, requested.conversation, profile, "conversation", deadline)
            items = known.items
        references = await self._find_references(principal, requested.references, profile, deadline)
        return replace(
            request, continued=ContinuedData(items, references, chain, requested.conversation, requested.store)
        )

    def append_when_done(
        self, exchange: Exchange, principal: Principal, profile: str, answer: AsyncGenerator[Batch, None]
    ) -> AsyncGenerator[Batch, None]:
        """Yield the events of an answer. Before the last event, append the answer to its conversation, if any."""
        if not isinstance(exchange, ResponsesExchange) or not exchange.continued.conversation:
            return answer
        return self._through(exchange, principal, profile, answer)

    def run(
        self,
        exchange: Exchange,
        principal: Principal,
        profile: str,
        deadline: Deadline,
        writer: str = "",
        before: ResumePoint | None = None,
    ) -> Run | None:
        """Return the run that answers and writes the events to a log, or None if the response is not stored.

        Args:
            exchange: Renders the answer.
            principal: The owner of the response.
            profile: Name of the front end.
            deadline: The deadline of the answer.
            writer: Name of the attempt; empty: a new name.
            before: The state of the response when the attempt begins; None: nothing is stored yet.
        """
        if not isinstance(exchange, ResponsesExchange) or not exchange.store:
            return None
        return Run(
            exchange,
            principal,
            profile,
            self._store,
            self._log,
            writer or self._peers.writer(),
            before=before,
            completed=self.appender(exchange, principal),
            deadline=deadline,
        )

    def appender(self, exchange: ResponsesExchange, principal: Principal) -> Continue | None:
        """Return a function that appends a response to its conversation, or None without a conversation.

        The function logs an error of the store and does not raise it.
        """
        name = exchange.continued.conversation
        if not name:
            return None

        async def append(stored: Stored) -> None:
            try:
                await self._continue(principal, name, stored, Deadline.after(_STORE_SECONDS))
            except CausewayError as error:
                _log.warning("a conversation was not continued", conversation=name, error=error.message)

        return append

    async def _through(
        self, exchange: ResponsesExchange, principal: Principal, profile: str, answer: AsyncGenerator[Batch, None]
    ) -> AsyncGenerator[Batch, None]:
        async with aclosing(answer) as batches:
            async for batch in batches:
                if type(batch[-1]) is not Done:
                    yield batch
                    continue
                if len(batch) > 1:
                    yield batch[:-1]
                if (append := self.appender(exchange, principal)) is not None:
                    await append(exchange.record(profile))
                yield batch[-1:]

    async def _continue(self, principal: Principal, name: str, stored: Stored, deadline: Deadline) -> None:
        """Append the items of a response to its conversation."""
        for _ in range(_MAX_TRIES):
            known = await self._store.read(principal, name, deadline)
            if known is None:
                return  # the conversation was deleted meanwhile
            items = (*known.items, *stored.all_items)[-MAX_ITEMS:]
            if await self._store.replace(principal, replace(known, items=items), deadline):
                return
        _log.warning("a conversation was not continued", conversation=name, error="other requests keep changing it")

    async def _find(self, principal: Principal, name: str, profile: str, field: str, deadline: Deadline) -> Stored:
        known = await self._store.read(principal, name, deadline)
        if known is None or known.profile != profile:
            raise missing(name, field)
        return known

    async def _find_all(
        self, principal: Principal, names: Sequence[str], profile: str, field: str, deadline: Deadline
    ) -> list[Stored]:
        """Return the stored objects with these ids, in their order."""
        found: list[Stored] = []
        for begin in range(0, len(names), _MAX_CONCURRENT_READS):
            batch = names[begin : begin + _MAX_CONCURRENT_READS]
            reads = [self._find(principal, name, profile, field, deadline) for name in batch]
            found += await asyncio.gather(*reads)
        return found

    async def _find_references(
        self, principal: Principal, names: Sequence[str], profile: str, deadline: Deadline
    ) -> tuple[tuple[str, Item], ...]:
        """Return the existing items with these ids."""
        containers = dict.fromkeys(container for name in names for container in container_ids(name))
        requested = set(names)
        found: dict[str, Item] = {}
        # Read responses before conversations, because most items belong to responses.
        for container in sorted(containers, key=lambda name: not name.startswith(RESPONSE)):
            if requested <= found.keys():
                break
            known = await self._store.read(principal, container, deadline)
            if known is not None and known.profile == profile:
                found |= {item["id"]: item for item in known.all_items if item.get("id") in requested}
        return tuple(found.items())

"""Reads stored responses for those who may see them, follows them while they come about, and cancels them."""

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
_BEAT = b": \n\n"


class ResponseReading:
    """Finds, shows and cancels.

    Args:
        store: Keeps the responses.
        log: Keeps their events.
        ending: Ends those that no gateway works on.
        access: Says who may see them.
        calls: The answers that run, at all gateways.
        heartbeat: Seconds of silence after which a stream gets a sign of life.

    Attributes:
        feeds: The logs that are read at the moment.
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
        self.feeds = Feeds(log, ending.look, ending.last_event)
        self._calls, self._heartbeat = calls, heartbeat

    async def find(self, principal: Principal, frontend: Frontend, name: str, deadline: Deadline) -> Stored:
        """Return a response as it is now.

        Raises:
            NotFound: The reader has none of this id, or may not see a document that it rests on.
        """
        found = await self._store.read(principal, name, deadline) if is_id(name, RESPONSE) else None
        if found is None:
            raise missing(name, "response_id")
        if frontend.hides_revoked and found.sources:
            reader = frontend.principal_for(principal, filter_asked=False)
            if not await self._access.allows(reader, found, deadline):
                raise missing(name, "response_id")
        return await self._ending.settled(principal, found, deadline)

    async def stream(self, principal: Principal, stored: Stored, after: int) -> AsyncGenerator[bytes, None]:
        """Return the events of a response behind a number, also those to come; the first ones are there.

        Raises:
            NotFound: It has no log: its front end kept none, or it is too old.
            InvalidRequest: The events behind the number are not kept any more.
        """
        events = self.feeds.read(principal, stored.id, after, self._heartbeat, over=not stored.runs)
        # What is wrong is a status as long as nothing was sent.
        try:
            first = await anext(events, None)
        except NotFound:
            message = "stream: the events of this response are not kept; read it in one piece."
            raise InvalidRequest(message, field="stream") from None
        except BaseException:
            await events.aclose()
            raise
        return _lines(first, events, stored.id)

    def follow(self, principal: Principal, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the events of a response that has just been accepted, also those to come."""
        return _lines(None, self.feeds.read(principal, name, -1, self._heartbeat), name)

    async def cancel(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """Cancel a response, wherever it runs, and return it; what is over stays as it is.

        Raises:
            NotFound: It was deleted meanwhile.
        """
        if not stored.runs:
            return stored
        found = await self._ending.end(principal, stored.id, CANCELLED, deadline)
        await self.stop(principal, stored.id)
        if found is None:
            raise missing(stored.id, "response_id")
        return found

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """Delete a response and its events, and end its answer.

        Raises:
            NotFound: The reader has none of this id.
        """
        if not is_id(name, RESPONSE) or not await self._store.delete(principal, name, deadline):
            raise missing(name, "response_id")
        # From here on nothing can be written to it.
        await self._log.delete(principal, name, deadline)
        await self.stop(principal, name)

    async def stop(self, principal: Principal, name: str) -> None:
        """Stop what answers: it can write nothing any more."""
        await self._calls.cancel(call_name(principal, name))


def call_name(principal: Principal, name: str) -> str:
    """Return the name under which the answer of a response runs."""
    return f"{principal.tenant}/{principal.owner}/{name}"


async def _lines(
    first: bytes | None, events: AsyncGenerator[bytes, None], name: str
) -> AsyncGenerator[bytes, None]:
    try:
        if first is not None:
            yield first or _BEAT
        async for data in events:
            yield data or _BEAT
    except CausewayError as error:
        _log.warning("a stream of a response broke off", response=name, error=error.message)
    finally:
        await events.aclose()

"""What the readers of a response share at a gateway: one subscription, and the end of the log."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest, NotFound
from servicekit.principal import Principal
from servicekit.tasks import ended

from gateway.domain.response_log import Entry
from gateway.ports.response_log import ResponseLog

_log = structlog.get_logger(__name__)
_MOST_BYTES = 256 * 1024
_SECONDS = 10.0
_QUIET = 1.0
_PAUSE = 0.2
_TRIES = 10

Quiet = Callable[[Principal, str, Entry], Awaitable[None]]


class Feed:
    """The end of one log, as it grows.

    Args:
        log: Has the logs.
        principal: Whose response it is.
        name: Id of the response.
        quiet: Called with the last entry when nothing was written for a second.
    """

    def __init__(self, log: ResponseLog, principal: Principal, name: str, quiet: Quiet) -> None:
        self._log, self._principal, self._name, self._quiet = log, principal, name, quiet
        self.readers = 0
        self.following: asyncio.Task[None] | None = None
        self.last = Entry("")
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._gap = False
        self._wake = asyncio.Event()

    async def follow(self) -> None:
        """Follow the log to its end."""
        while not self.last.ended:
            try:
                deadline = Deadline.after(_SECONDS)
                async with self._log.watch(self._principal, self._name, self._heard, deadline):
                    await self._catch_up()
                    while not self.last.ended:
                        await self._next()
            except CausewayError as error:
                _log.warning("a log cannot be followed", response=self._name, error=error.message)
                await asyncio.sleep(_PAUSE)

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(_QUIET):
                await self._wake.wait()
            quiet = False
        except TimeoutError:
            quiet = True
        self._wake.clear()
        if quiet or self._gap:
            before = self.last.position
            await self._catch_up()
            if quiet and before == self.last.position and not self.last.ended:
                await self._quiet(self._principal, self._name, self.last)

    async def _catch_up(self) -> None:
        """Take what was written and not heard; at first only the last entry."""
        deadline = Deadline.after(_SECONDS)
        self._gap = False
        if not self.last.position:
            last = await self._log.last(self._principal, self._name, deadline)
            if last is not None and last.position > self.last.position:
                self._take(last)
            return
        while found := await self._log.read(self._principal, self._name, self.last.position, deadline):
            for entry in found:
                if entry.position > self.last.position:
                    self._take(entry)

    def _heard(self, entry: Entry) -> None:
        if entry.position <= self.last.position:
            return
        if entry.before != self.last.position and not entry.deleted:
            self._gap = True
        else:
            self._take(entry)
        self._wake.set()

    def _take(self, entry: Entry) -> None:
        self.last = entry
        self._entries.append(entry)
        self._size += len(entry.data)
        while self._size > _MOST_BYTES and len(self._entries) > 1:
            self._size -= len(self._entries.popleft().data)
        self._news.set()
        self._news = asyncio.Event()

    def behind(self, position: int) -> Entry | None:
        """Return the entry that follows a position, where it is known here."""
        # A reader that keeps up wants the last one.
        for entry in reversed(self._entries):
            if entry.before == position or (entry.deleted and entry.position > position):
                return entry
            if entry.position <= position:
                return None
        return None

    async def more(self, position: int, seconds: float) -> bool:
        """Wait until there is something behind a position; return False where there was nothing in time."""
        if self.last.position > position:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


@dataclass(slots=True)
class _Cursor:
    """How far one reader is.

    Attributes:
        name: Id of the response.
        after: Number of the last event that the reader has or does not want.
        position: Of the last entry that was read.
        ended: Nothing follows.
    """

    name: str
    after: int
    position: int = 0
    ended: bool = False

    def passed(self, entries: Sequence[Entry]) -> bytes:
        """Pass entries, and return the events in them that are wanted.

        Raises:
            NotFound: The response was deleted.
            InvalidRequest: The first ones that are wanted are not kept any more.
        """
        wanted = []
        for entry in entries:
            if entry.deleted:
                raise NotFound("The response was deleted.", resource=self.name)
            self.position, self.ended = entry.position, entry.ended
            if entry.last > self.after:
                if entry.first > self.after + 1:
                    message = "starting_after: the events behind this one are not kept any more."
                    raise InvalidRequest(message, field="starting_after")
                wanted.append(entry.after(self.after))
                self.after = entry.last
        return b"".join(wanted)


class Feeds:
    """The logs that are read at a gateway.

    Args:
        log: Has them.
        quiet: Called with the last entry of one that does not go on.
    """

    def __init__(self, log: ResponseLog, quiet: Quiet) -> None:
        self._log = log
        self._quiet = quiet
        self._feeds: dict[tuple[str, str, str], Feed] = {}

    @property
    def readers(self) -> int:
        """How many read now."""
        return sum(feed.readers for feed in self._feeds.values())

    @property
    def followed(self) -> int:
        """How many logs they read."""
        return len(self._feeds)

    async def read(
        self, principal: Principal, name: str, after: int, beat: float, *, over: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a response behind a number, until it is over; empty bytes where it is silent.

        Args:
            principal: Who reads; the response is theirs.
            name: Id of the response.
            after: Number of the event that is not wanted any more; -1: all are.
            beat: Seconds of silence.
            over: The response is over, and so there must be events.

        Raises:
            NotFound: The response was deleted, or its events are not kept any more.
            InvalidRequest: Its first events are not kept any more.
        """
        cursor = _Cursor(name, after)
        if over:
            # No subscription: nothing comes any more, but for the last event of one that has ended just now.
            while not cursor.ended and (found := await self._stored(principal, name, cursor.position)):
                if data := cursor.passed(found):
                    yield data
            # The server that was asked may not have got it yet; the leader has.
            if not cursor.position and not await self._log.last(principal, name, Deadline.after(_SECONDS)):
                raise NotFound("The events of the response are not kept any more.", resource=name)
            if cursor.ended:
                return
        async with self._feed(principal, name) as feed:
            while not cursor.ended:
                position = cursor.position
                entry = feed.behind(position) if position else None
                entries = [entry] if entry is not None else await self._read(feed, principal, name, position)
                if not entries and not await feed.more(position, beat):
                    yield b""
                if data := cursor.passed(entries):
                    yield data

    async def _stored(self, principal: Principal, name: str, position: int) -> Sequence[Entry]:
        return await self._log.read(principal, name, position, Deadline.after(_SECONDS))

    async def _read(self, feed: Feed, principal: Principal, name: str, position: int) -> Sequence[Entry]:
        """What the log has behind a position; nothing where that was the last entry."""
        if position and feed.last.position <= position:
            return []
        for _ in range(_TRIES):
            if found := await self._stored(principal, name, position):
                return found
            if feed.last.position <= position:
                return []
            await asyncio.sleep(_PAUSE)  # the server that was asked has not got it yet
        raise NotFound("The events of the response are not kept any more.", resource=name)

    @contextlib.asynccontextmanager
    async def _feed(self, principal: Principal, name: str) -> AsyncIterator[Feed]:
        key = principal.tenant, principal.owner, name
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(self._log, principal, name, self._quiet)
            feed.following = asyncio.create_task(feed.follow())
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                del self._feeds[key]
                if feed.following is not None:
                    await ended(feed.following)

"""Feeds: the readers of a response at a gateway share one subscription and a cache of its log."""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest, NotFound
from servicekit.principal import Principal
from servicekit.tasks import ended

from gateway.domain.response_log import Entry
from gateway.ports.response_log import ResponseLog

_log = structlog.get_logger(__name__)
_MOST_BYTES = 256 * 1024
_MOST_KEPT_BYTES, _KEPT_SECONDS = 8 * 1024 * 1024, 30.0
_SECONDS = 10.0
_QUIET = 1.0
_PAUSE = 0.2
_TRIES = 10

Quiet = Callable[[Principal, str, Entry], Awaitable[None]]
LastEvent = Callable[[Principal, str, int], Awaitable[bytes]]
Key = tuple[str, str, str]


class Feed:
    """One growing log. The last 256 KiB are read once for all readers.

    Args:
        log: The logs.
        principal: The owner of the response.
        name: The id of the response.
        quiet: Called with the last entry when nothing was written for a second.
        last_event: Makes the last event of an ended response from the stored response.

    Attributes:
        readers: Number of current readers.
        following: The task that follows the log to its end.
        last: The last entry.
        size: Bytes of the cached events.
        used: Time when the last reader left.
    """

    def __init__(
        self, log: ResponseLog, principal: Principal, name: str, quiet: Quiet, last_event: LastEvent
    ) -> None:
        self._log, self._principal, self._name = log, principal, name
        self._quiet, self._last_event = quiet, last_event
        self.readers = 0
        self.following: asyncio.Task[None] | None = None
        self.last = Entry("")
        self.size = 0
        self.used = 0.0
        self._entries: deque[Entry] = deque()
        self._loaded = asyncio.Event()
        self._failure: CausewayError | None = None
        self._news = asyncio.Event()
        self._gap = False
        self._wake = asyncio.Event()

    async def follow(self, *, over: bool) -> None:
        """Read the log and follow it to its end.

        Args:
            over: Whether the response has ended. Then its log must have events.
        """
        try:
            if over:  # without a subscription: at most the last event can still arrive
                await self._catch_up()
                if not self.last.position:
                    await self._must_be_there()
                self._loaded.set()
            while not self.last.ended:
                await self._follow()
        except CausewayError as error:  # nothing was read yet: the readers raise it to their clients
            self._failure = error
            self._loaded.set()

    async def _follow(self) -> None:
        try:
            deadline = Deadline.after(_SECONDS)
            async with self._log.watch(self._principal, self._name, self._heard, deadline):
                await self._catch_up()
                self._loaded.set()
                while not self.last.ended:
                    await self._next()
        except CausewayError as error:
            if not self._loaded.is_set():
                raise
            _log.warning("a log cannot be followed", response=self._name, error=error.message)
            await asyncio.sleep(_PAUSE)

    async def _must_be_there(self) -> None:
        """Ask the leader, because a follower may not have the log yet."""
        if not await self._log.last(self._principal, self._name, Deadline.after(_SECONDS)):
            raise NotFound("The events of the response are not kept any more.", resource=self._name)

    async def loaded(self) -> None:
        """Wait until the existing entries were read.

        Raises:
            NotFound: The response has ended and has no events.
            Unavailable: The log cannot be reached.
        """
        await self._loaded.wait()
        if self._failure is not None:
            raise self._failure

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
        """Read the entries that the subscription has missed."""
        self._gap = False
        while not self.last.ended and (found := await self.read(self.last.position)):
            for entry in found:
                if entry.position > self.last.position:
                    self._take(entry)

    async def read(self, position: int) -> Sequence[Entry]:
        """Return the next entries after a position from the log itself."""
        found = await self._log.read(self._principal, self._name, position, Deadline.after(_SECONDS))
        if not found or not found[-1].lacks_event:
            return found
        last = found[-1]
        return [*found[:-1], replace(last, data=await self._last_event(self._principal, self._name, last.first))]

    def _heard(self, entry: Entry) -> None:
        if entry.position <= self.last.position:
            return
        if entry.lacks_event or (entry.before != self.last.position and not entry.deleted):
            self._gap = True
        else:
            self._take(entry)
        self._wake.set()

    def _take(self, entry: Entry) -> None:
        self.last = entry
        self._entries.append(entry)
        self.size += len(entry.data)
        while self.size > _MOST_BYTES and len(self._entries) > 1:
            self.size -= len(self._entries.popleft().data)
        self._news.set()
        self._news = asyncio.Event()

    def behind(self, position: int) -> Sequence[Entry] | None:
        """Return the entries after a position, or None if some of them are not cached."""
        if self.last.position <= position:
            return ()
        found: list[Entry] = []
        for entry in reversed(self._entries):  # a reader that keeps up wants the last one
            found.append(entry)
            if entry.before <= position or entry.deleted:
                return found[::-1]
        return None

    async def more(self, position: int, seconds: float) -> bool:
        """Wait for entries after a position. Return False if none arrive in time."""
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
    """The position of one reader.

    Attributes:
        name: The id of the response.
        after: Number of the last event that the reader has or does not want.
        position: Position of the last entry that was read.
        ended: Whether the log has ended.
    """

    name: str
    after: int
    position: int = 0
    ended: bool = False

    def passed(self, entries: Sequence[Entry]) -> bytes:
        """Move past entries and return their events that the reader wants.

        Raises:
            NotFound: The response was deleted.
            InvalidRequest: The first wanted events are not kept any more.
        """
        wanted = []
        for entry in entries:
            if entry.deleted:
                raise NotFound("The response was deleted.", resource=self.name)
            self.position, self.ended = entry.position, entry.ended
            if entry.last > self.after:
                if entry.first > self.after + 1:
                    message = "starting_after: the events after this one are not kept any more."
                    raise InvalidRequest(message, field="starting_after")
                wanted.append(entry.after(self.after))
                self.after = entry.last
        return b"".join(wanted)


class Feeds:
    """The feeds of a gateway.

    Ended logs are cached for a while, up to 8 MiB in total, because many readers return at the same time after an
    outage of a gateway or a network.

    Args:
        log: The logs.
        quiet: Called with the last entry of a log that has stopped.
        last_event: Makes the last event of an ended response from the stored response.
    """

    def __init__(self, log: ResponseLog, quiet: Quiet, last_event: LastEvent) -> None:
        self._log, self._quiet, self._last_event = log, quiet, last_event
        self._feeds: dict[Key, Feed] = {}
        self._kept: OrderedDict[Key, Feed] = OrderedDict()
        self._kept_bytes = 0

    @property
    def readers(self) -> int:
        """Number of current readers."""
        return sum(feed.readers for feed in self._feeds.values())

    @property
    def followed(self) -> int:
        """Number of logs that are read."""
        return len(self._feeds)

    async def read(
        self, principal: Principal, name: str, after: int, beat: float, *, over: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a response after a number until its end, and empty bytes after silence.

        Args:
            principal: The reader, who owns the response.
            name: The id of the response.
            after: Number of the last event to skip; -1: skip none.
            beat: Seconds of silence after which empty bytes are yielded.
            over: Whether the response has ended. Then its log must have events.

        Raises:
            NotFound: The response was deleted, or its events are not kept any more.
            InvalidRequest: The first wanted events are not kept any more.
        """
        cursor = _Cursor(name, after)
        async with self._feed(principal, name, over=over) as feed:
            await feed.loaded()
            while not cursor.ended:
                position = cursor.position
                entries = feed.behind(position)
                if entries is None:
                    entries = await _read(feed, name, position)
                if not entries and not await feed.more(position, beat):
                    yield b""
                if data := cursor.passed(entries):
                    yield data

    @contextlib.asynccontextmanager
    async def _feed(self, principal: Principal, name: str, *, over: bool) -> AsyncIterator[Feed]:
        key = principal.tenant, principal.owner, name
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = self._taken(key) or Feed(
                self._log, principal, name, self._quiet, self._last_event
            )
            if feed.following is None:
                feed.following = asyncio.create_task(feed.follow(over=over))
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                del self._feeds[key]
                if feed.following is not None:
                    await ended(feed.following)
                if feed.last.ended and not feed.last.deleted:
                    self._keep(key, feed)

    def _keep(self, key: Key, feed: Feed) -> None:
        self._taken(key)
        feed.used = time.monotonic()
        self._kept[key] = feed
        self._kept_bytes += feed.size
        while self._kept_bytes > _MOST_KEPT_BYTES or self._oldest_is_old():
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.size

    def _oldest_is_old(self) -> bool:
        oldest = next(iter(self._kept.values()), None)
        return oldest is not None and time.monotonic() - oldest.used > _KEPT_SECONDS

    def _taken(self, key: Key) -> Feed | None:
        """Remove an ended log from the cache and return it."""
        feed = self._kept.pop(key, None)
        if feed is not None:
            self._kept_bytes -= feed.size
        return feed


async def _read(feed: Feed, name: str, position: int) -> Sequence[Entry]:
    """Return the entries of the log after a position, or an empty list after the last entry."""
    for _ in range(_TRIES):
        if found := await feed.read(position):
            return found
        if feed.last.position <= position:
            return []
        await asyncio.sleep(_PAUSE)  # a follower does not have the entry yet
    raise NotFound("The events of the response are not kept any more.", resource=name)

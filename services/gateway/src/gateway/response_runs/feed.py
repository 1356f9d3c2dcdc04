"""Feeds of the events of responses. All readers of a response share one subscription and one cache."""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Internal, NotFound
from servicekit.principal import Principal
from servicekit.tasks import cancel_and_wait

from gateway.domain.response_log import Entry
from gateway.ports.response_log import ResponseLog
from gateway.response_runs.cursor import Cursor

_log = structlog.get_logger(__name__)
_FEED_BYTES = 256 * 1024
_CACHE_BYTES, _CACHE_SECONDS = 8 * 1024 * 1024, 30.0
_READ_SECONDS = 10.0
_SILENT_SECONDS = 1.0
_CHECK_SECONDS = 5.0  # at least, between two reads of the stored response of a silent log
_RETRY_SECONDS = 0.2
_MAX_ATTEMPTS = 10

OnSilence = Callable[[Principal, str, Entry, bool], Awaitable[None]]
"""Parameters: the owner and the id of a response, its last entry, and whether to read the stored response."""
LastEvent = Callable[[Principal, str, int], Awaitable[bytes]]
"""Parameters: the owner and the id of a response, and the number of the event."""
Key = tuple[str, str, str]
"""The tenant and the owner of a response, and its id."""


class Feed:
    """The log of one response, with a cache of its last 256 KiB for all readers.

    Args:
        log: The logs.
        principal: The owner of the response.
        name: The id of the response.
        on_silence: Called every second while nothing is written to the log (`OnSilence`).
        last_event: Renders the last event of an ended response from the stored response.

    Attributes:
        readers: Number of current readers.
        following: The task that follows the log to its end.
        last: The last entry.
        size: Bytes of the cached events.
        last_used: The time when the last reader left, in seconds of the monotonic clock.
    """

    def __init__(
        self, log: ResponseLog, principal: Principal, name: str, on_silence: OnSilence, last_event: LastEvent
    ) -> None:
        self._log, self._principal, self._name = log, principal, name
        self._on_silence, self._last_event = on_silence, last_event
        self.readers = 0
        self.following: asyncio.Task[None] | None = None
        self.last = Entry("")
        self.size = 0
        self.last_used = 0.0
        self._entries: deque[Entry] = deque()
        self._loaded = asyncio.Event()
        self._failure: CausewayError | None = None
        self._new_entries = asyncio.Event()
        self._has_gap = False
        self._wake = asyncio.Event()
        self._next_check = 0.0

    async def follow(self, *, has_ended: bool) -> None:
        """Read the log and follow it to its end.

        Args:
            has_ended: Whether the response has ended. In this case its log must have events.
        """
        try:
            if has_ended:  # no subscription: at most the last event can still arrive
                await self._catch_up()
                if not self.last.position:
                    await self._require_log()
                self._loaded.set()
            while not self.last.ended:
                await self._follow()
        except CausewayError as error:
            self._fail(error)
        except Exception as error:  # the boundary: the readers get an error, the program's log the cause
            _log.exception("a log cannot be followed", response=self._name, error=str(error))
            self._fail(Internal())

    def _fail(self, error: CausewayError) -> None:
        """Record an error, which `loaded` and `wait_after` then raise to the readers."""
        self._failure = error
        self._loaded.set()
        self._new_entries.set()

    async def _follow(self) -> None:
        try:
            deadline = Deadline.after(_READ_SECONDS)
            async with self._log.watch(self._principal, self._name, self._received, deadline):
                await self._catch_up()
                self._loaded.set()
                while not self.last.ended:
                    await self._next()
        except CausewayError as error:
            if not self._loaded.is_set():
                raise
            _log.warning("a log cannot be followed", response=self._name, error=error.message)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _require_log(self) -> None:
        """Refuse a log without entries. The leader decides, because a follower may lack the latest entries."""
        if not await self._log.last(self._principal, self._name, Deadline.after(_READ_SECONDS)):
            raise NotFound("The events of the response are no longer stored.", resource=self._name)

    async def loaded(self) -> None:
        """Wait until the feed has read the existing entries.

        Raises:
            NotFound: The response has ended and has no events.
            CausewayError: The log cannot be read.
        """
        await self._loaded.wait()
        if self._failure is not None:
            raise self._failure

    async def _next(self) -> None:
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                await self._wake.wait()
            is_silent = False
        except TimeoutError:
            is_silent = True
        self._wake.clear()
        if is_silent or self._has_gap:
            before = self.last.position
            await self._catch_up()
            if is_silent and before == self.last.position and not self.last.ended:
                if reads_stored := time.monotonic() >= self._next_check:
                    self._next_check = time.monotonic() + _CHECK_SECONDS
                await self._on_silence(self._principal, self._name, self.last, reads_stored)

    async def _catch_up(self) -> None:
        """Read the entries that the subscription did not deliver."""
        self._has_gap = False
        while not self.last.ended and (found := await self.read(self.last.position)):
            for entry in found:
                if entry.position > self.last.position:
                    self._add(entry)

    async def read(self, position: int) -> Sequence[Entry]:
        """Return the next entries after a position from the log, not from the cache."""
        found = await self._log.read(self._principal, self._name, position, Deadline.after(_READ_SECONDS))
        if not found or not found[-1].lacks_event:
            return found
        last = found[-1]
        return [*found[:-1], replace(last, data=await self._last_event(self._principal, self._name, last.first))]

    def _received(self, entry: Entry) -> None:
        if entry.position <= self.last.position:
            return
        if entry.lacks_event or (entry.before != self.last.position and not entry.deleted):
            self._has_gap = True
        else:
            self._add(entry)
        self._wake.set()

    def _add(self, entry: Entry) -> None:
        self.last = entry
        self._entries.append(entry)
        self.size += len(entry.data)
        while self.size > _FEED_BYTES and len(self._entries) > 1:
            self.size -= len(self._entries.popleft().data)
        self._new_entries.set()
        self._new_entries = asyncio.Event()

    def cached_after(self, position: int) -> Sequence[Entry] | None:
        """Return the entries after a position, or None if some of them are not cached."""
        if self.last.position <= position:
            return ()
        found: list[Entry] = []
        for entry in reversed(self._entries):  # most readers need only the last entry
            found.append(entry)
            if entry.before <= position or entry.deleted:
                return found[::-1]
        return None

    async def wait_after(self, position: int, seconds: float) -> bool:
        """Wait for entries after a position. Return False if none arrive in time.

        Raises:
            CausewayError: The log cannot be followed any more.
        """
        if self.last.position > position:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._new_entries.wait()
        except TimeoutError:
            return False
        if self._failure is not None:
            raise self._failure
        return True


class Feeds:
    """All feeds of a gateway.

    Ended logs stay in a cache of 8 MiB for half a minute, because many readers reconnect at the same time after an
    outage of a gateway or a network.

    Args:
        log: The logs.
        on_silence: Called every second while nothing is written to a log (`OnSilence`).
        last_event: Renders the last event of an ended response from the stored response.
    """

    def __init__(self, log: ResponseLog, on_silence: OnSilence, last_event: LastEvent) -> None:
        self._log, self._on_silence, self._last_event = log, on_silence, last_event
        self._feeds: dict[Key, Feed] = {}
        self._cached: OrderedDict[Key, Feed] = OrderedDict()
        self._cached_bytes = 0

    @property
    def readers(self) -> int:
        """Number of current readers."""
        return sum(feed.readers for feed in self._feeds.values())

    @property
    def followed(self) -> int:
        """Number of logs that have readers."""
        return len(self._feeds)

    async def read(
        self, principal: Principal, name: str, after: int, heartbeat: float, *, has_ended: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a response after an event, until the response ends. Yield empty bytes after silence.

        Args:
            principal: The reader, who owns the response.
            name: The id of the response.
            after: Number of the last event to skip; -1: skip none.
            heartbeat: Seconds of silence after which empty bytes are yielded.
            has_ended: Whether the response has ended. Then its log must have events.

        Raises:
            NotFound: The response was deleted, or its events are no longer stored.
            InvalidRequest: The first unsent events are no longer stored.
            CausewayError: The log cannot be read.
        """
        cursor = Cursor(name, after)
        async with self._feed(principal, name, has_ended=has_ended) as feed:
            await feed.loaded()
            while not cursor.ended:
                position = cursor.position
                entries = feed.cached_after(position)
                if entries is None:
                    entries = await _read(feed, name, position)
                if not entries and not await feed.wait_after(position, heartbeat):
                    yield b""
                if data := cursor.advance(entries):
                    yield data

    @contextlib.asynccontextmanager
    async def _feed(self, principal: Principal, name: str, *, has_ended: bool) -> AsyncIterator[Feed]:
        key = principal.tenant, principal.owner, name
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = self._pop_cached(key) or Feed(
                self._log, principal, name, self._on_silence, self._last_event
            )
            if feed.following is None:
                feed.following = asyncio.create_task(feed.follow(has_ended=has_ended))
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                del self._feeds[key]
                if feed.following is not None:
                    await cancel_and_wait(feed.following)
                if feed.last.ended and not feed.last.deleted:
                    self._cache(key, feed)

    def _cache(self, key: Key, feed: Feed) -> None:
        self._pop_cached(key)
        feed.last_used = time.monotonic()
        self._cached[key] = feed
        self._cached_bytes += feed.size
        while self._cached_bytes > _CACHE_BYTES or self._oldest_expired():
            _, oldest = self._cached.popitem(last=False)
            self._cached_bytes -= oldest.size

    def _oldest_expired(self) -> bool:
        oldest = next(iter(self._cached.values()), None)
        return oldest is not None and time.monotonic() - oldest.last_used > _CACHE_SECONDS

    def _pop_cached(self, key: Key) -> Feed | None:
        """Remove an ended log from the cache and return it."""
        feed = self._cached.pop(key, None)
        if feed is not None:
            self._cached_bytes -= feed.size
        return feed


async def _read(feed: Feed, name: str, position: int) -> Sequence[Entry]:
    """Return the entries of the log after a position, or an empty list after the last entry.

    Raises:
        NotFound: The log does not contain the entries any more.
    """
    for _ in range(_MAX_ATTEMPTS):
        if found := await feed.read(position):
            return found
        if feed.last.position <= position:
            return []
        await asyncio.sleep(_RETRY_SECONDS)  # a follower may lack the latest entries
    raise NotFound("The events of the response are no longer stored.", resource=name)

"""The open connections of clients: their limit, and which one is closed beyond it."""

import enum
import time
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)
_LOG_INTERVAL = 10.0


class Place(enum.Enum):
    """The requests that a new connection may send."""

    OPEN = "open"
    RESERVED = "reserved"
    """Request health and metrics only: the limit is reached."""
    REFUSED = "refused"


class Connection(Protocol):
    """A connection that can be closed to make room."""

    def close(self) -> None:
        """Close the connection, which has no request."""


class Connections:
    """Bounds the open connections of the process, so that a descriptor is always free.

    A connection beyond the limit replaces the one that has been idle longest, as in nginx. If none is idle, it gets
    one of the reserved slots, in which only health and metrics are answered. If these are taken, too, it is closed
    immediately.

    Args:
        limit: The maximum number of connections.
        reserve: Further connections, for health and metrics.
    """

    def __init__(self, limit: int, reserve: int = 64) -> None:
        self._limit = limit
        self._most = limit + reserve
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self.shed = {"idle": 0, "refused": 0}
        self._logged = -_LOG_INTERVAL

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Return the number of connections without a request."""
        return len(self._idle)

    def opened(self, connection: Connection) -> Place:
        """Add a new connection, which is idle; make room for it if needed."""
        if len(self._open) >= self._limit and self._idle:
            self._shed("idle")
            longest = next(iter(self._idle))
            self.closed(longest)
            longest.close()
        place = Place.OPEN
        if len(self._open) >= self._limit:
            self._shed("refused")
            place = Place.RESERVED if len(self._open) < self._most else Place.REFUSED
        if place is not Place.REFUSED:
            self._open.add(connection)
            self._idle[connection] = None
        return place

    def idle(self, connection: Connection) -> None:
        """Mark a connection as waiting for its client's next request."""
        if connection in self._open:
            self._idle[connection] = None

    def busy(self, connection: Connection) -> None:
        """Mark a connection as busy with a request."""
        self._idle.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        """Remove a connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _shed(self, reason: str) -> None:
        self.shed[reason] += 1
        now = time.monotonic()
        if now - self._logged >= _LOG_INTERVAL:
            self._logged = now
            _log.warning("connection limit reached", open=len(self._open), limit=self._limit, **self.shed)

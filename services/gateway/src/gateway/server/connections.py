"""Limits the open connections of clients."""

import enum
import time
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)
_LOG_INTERVAL_SECONDS = 10.0


class Place(enum.Enum):
    """Whether a new connection is accepted, and for which requests."""

    OPEN = "open"
    RESERVED = "reserved"
    """The limit is reached. The connection may only request health and metrics."""
    REFUSED = "refused"


class Connection(Protocol):
    """A connection that `Connections` can close."""

    def close(self) -> None:
        """Close the connection, which is idle."""


class Connections:
    """Limits the open connections of the process, so that it never runs out of file descriptors.

    A connection beyond the limit replaces the connection that has been idle longest, as in nginx. If no connection
    is idle, the new one gets a reserved place, and may only request health and metrics. If no reserved place is
    free, the new connection is closed immediately.

    Args:
        limit: The maximum number of connections.
        reserve: The number of further connections for health and metrics.

    Attributes:
        shed: The numbers of connections that were closed while idle (``idle``), and of new connections that were
            refused or got a reserved place (``refused``).
    """

    def __init__(self, limit: int, reserve: int = 64) -> None:
        self._limit = limit
        self._max_open = limit + reserve
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self.shed = {"idle": 0, "refused": 0}
        self._logged_at = -_LOG_INTERVAL_SECONDS

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def opened(self, connection: Connection) -> Place:
        """Add a new connection, which is idle. At the limit, close the connection that has been idle longest."""
        if len(self._open) >= self._limit and self._idle:
            self._shed("idle")
            longest = next(iter(self._idle))
            self.closed(longest)
            longest.close()
        place = Place.OPEN
        if len(self._open) >= self._limit:
            self._shed("refused")
            place = Place.RESERVED if len(self._open) < self._max_open else Place.REFUSED
        if place is not Place.REFUSED:
            self._open.add(connection)
            self._idle[connection] = None
        return place

    def idle(self, connection: Connection) -> None:
        """Mark a connection as idle: it waits for the next request."""
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
        if now - self._logged_at >= _LOG_INTERVAL_SECONDS:
            self._logged_at = now
            _log.warning("connection limit reached", open=len(self._open), limit=self._limit, **self.shed)

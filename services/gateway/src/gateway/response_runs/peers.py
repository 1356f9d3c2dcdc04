"""Tracks the live gateways by their heartbeats."""

import secrets

HEARTBEAT_SECONDS = 1.0
"""Seconds between heartbeats."""
_MAX_MISSED = 5
_MAX_GATEWAYS = 1000
_JOB = "job"
QUEUE = "queue"
"""The writer of the first events of a queued response."""


class Peers:
    """The gateways whose heartbeats were received.

    The unit of time is this gateway's own heartbeat, as NATS delivers it. Therefore no gateway expires while NATS
    is unavailable or this process is frozen.

    Attributes:
        name: The name of this gateway. A restarted process has a new name.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self._beats = 0
        self._seen: dict[str, int] = {}
        self._writers = 0

    def record_heartbeat(self, name: str) -> None:
        """Record a heartbeat of a gateway, including this one."""
        if name == self.name:
            self._beats += 1
            if len(self._seen) > _MAX_GATEWAYS:
                self._seen = {name: seen for name, seen in self._seen.items() if self._beats - seen < _MAX_MISSED}
            return
        self._seen[name] = self._beats

    def writer(self, *, background: bool = False) -> str:
        """Return a new writer name for entries of this gateway in a log."""
        self._writers += 1
        kind = f"{_JOB}." if background else ""
        return f"{kind}{self.name}.{self._writers}"

    def has_stopped(self, writer: str) -> bool:
        """Return whether the gateway of a writer has stopped. False for jobs, because the queue redelivers them."""
        name = writer.partition(".")[0]
        if name in (_JOB, QUEUE, self.name):
            return False
        return self._beats - self._seen.get(name, 0) >= _MAX_MISSED


def runs_job(writer: str) -> bool:
    """Return whether a writer is an attempt to answer in the background."""
    return writer.startswith(f"{_JOB}.")

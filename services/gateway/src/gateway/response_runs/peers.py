"""Which gateways are there: each says so every second."""

import secrets

SECONDS = 1.0
"""Seconds between the beats of a gateway."""
_SILENT = 5
_MOST = 1000
_JOB = "job"
QUEUE = "queue"
"""Writes the first events of a response that waits for a gateway."""


class Peers:
    """The gateways that were heard of.

    Time is counted in this gateway's own beats, as they come back from NATS: while NATS is away, or this process is
    frozen, none of the others grows older.

    Attributes:
        name: Of this gateway; a process that starts again has another one.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self._beats = 0
        self._seen: dict[str, int] = {}
        self._writers = 0

    def hear(self, name: str) -> None:
        """Take a beat of a gateway, this one's included."""
        if name == self.name:
            self._beats += 1
            if len(self._seen) > _MOST:
                self._seen = {each: seen for each, seen in self._seen.items() if self._beats - seen < _SILENT}
            return
        self._seen[name] = self._beats

    def writer(self, *, background: bool = False) -> str:
        """Return a new name for what this gateway writes to a log."""
        self._writers += 1
        kind = f"{_JOB}." if background else ""
        return f"{kind}{self.name}.{self._writers}"

    def gone(self, writer: str) -> bool:
        """Return whether the gateway of a writer is silent. A job is not: the queue hands it out, and on."""
        name = writer.partition(".")[0]
        if name in (_JOB, QUEUE, self.name):
            return False
        return self._beats - self._seen.get(name, 0) >= _SILENT


def runs_job(writer: str) -> bool:
    """Return whether a writer is an attempt to answer in the background."""
    return writer.startswith(f"{_JOB}.")

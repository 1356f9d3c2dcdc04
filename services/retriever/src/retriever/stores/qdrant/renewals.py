"""Observation of leases of other processes.

The holder of a lease sets its expiry by the holder's own clock. This clock may be behind the clock of this process,
so an expiry in the past does not prove that the holder has terminated. A holder renews its leases regularly. A
lease is abandoned if it has expired and this process has not read a renewal for longer than the interval of
renewals.
"""

import time
from collections.abc import Collection

from retriever.stores.qdrant import schema

RENEWAL_FRACTION = 1 / 3
"""Part of the duration of a lease after which its holder renews it."""
_SILENCE_FRACTION = 0.4
"""Part of the duration of a lease. An expired lease is abandoned if its holder has not renewed it for this long."""


class Renewals:
    """The expiries of leases that this process has read.

    Args:
        lease_seconds: Duration of a lease.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._silence = lease_seconds * _SILENCE_FRACTION
        self._seen: dict[str, tuple[float, float]] = {}

    def record(self, key: str, until: float) -> None:
        """Record the expiry of a lease."""
        known = self._seen.get(key)
        if known is None or known[0] != until:
            self._seen[key] = until, time.monotonic()

    def is_abandoned(self, key: str, until: float) -> bool:
        """Return whether a lease has expired, and its holder has given it up or no longer renews it."""
        self.record(key, until)
        _, since = self._seen[key]
        silent = until <= schema.GIVEN_UP or time.monotonic() >= since + self._silence
        return until < time.time() and silent

    def retain(self, keys: Collection[str]) -> None:
        """Remove the leases that do not exist any more."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}

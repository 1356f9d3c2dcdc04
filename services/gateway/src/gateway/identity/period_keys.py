"""Rings of keys that all replicas of the gateway share, with one key for each period of time."""

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Self


class PeriodKeys:
    """A ring of keys, one for each period. `clients.period_keys` loads and updates it.

    The id of a key is the number of its period. Replicas therefore agree on the newest key without communication.

    Args:
        now: Returns seconds since 1970.

    Attributes:
        PERIOD_SECONDS: The length of a period.
        EARLIER_PERIODS: The number of earlier periods whose keys are still valid.
        AHEAD_SECONDS: The number of seconds by which the creation of a key precedes its period.
    """

    PERIOD_SECONDS: ClassVar[int]
    EARLIER_PERIODS: ClassVar[int]
    AHEAD_SECONDS: ClassVar[int]

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[int, bytes] = {}

    @property
    def period(self) -> int:
        """Return the number of the current period."""
        return int(self._now() // self.PERIOD_SECONDS)

    @property
    def ids(self) -> frozenset[int]:
        """Return the ids of the valid keys in this ring."""
        return frozenset(filter(self.is_valid, self._keys))

    @property
    def newest(self) -> int | None:
        """Return the id of the newest key that may sign or encrypt now, or None without such a key."""
        return max((key_id for key_id in self.ids if key_id <= self.period), default=None)

    def is_valid(self, key_id: int) -> bool:
        """Return whether a key with this id is valid. The next period's key is valid, because clocks differ."""
        return -1 <= self.period - key_id <= self.EARLIER_PERIODS

    def put(self, key_id: int, key: bytes) -> None:
        """Add a key, and remove expired keys."""
        self._keys[key_id] = key
        self._keys = {known_id: known for known_id, known in self._keys.items() if self.is_valid(known_id)}

    def replace(self, keys: Mapping[int, bytes]) -> None:
        """Replace all keys by the valid ones of the given keys."""
        self._keys = {key_id: key for key_id, key in keys.items() if self.is_valid(key_id)}

    @classmethod
    def of(cls, *keys: bytes, now: Callable[[], float] = time.time) -> Self:
        """Return a ring with the keys of the current period and of the periods before it, newest first."""
        ring = cls(now)
        for age, key in enumerate(keys):
            ring.put(ring.period - age, key)
        return ring

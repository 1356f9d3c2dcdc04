"""Rings of keys that change with time and that all replicas of the gateway share."""

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Self


class PeriodKeys:
    """A ring of keys, one for each period. `clients.period_keys` fills it and keeps it up to date.

    The id of a key is the number of its period. Replicas therefore agree on the newest key without communication.

    Args:
        now: Returns seconds since 1970.

    Attributes:
        SECONDS: Length of a period.
        KEPT: The number of earlier periods whose keys are still valid.
        AHEAD: Seconds before the start of a period at which its key is created.
    """

    SECONDS: ClassVar[int]
    KEPT: ClassVar[int]
    AHEAD: ClassVar[int]

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[int, bytes] = {}

    @property
    def period(self) -> int:
        """Return the number of the current period."""
        return int(self._now() // self.SECONDS)

    @property
    def ids(self) -> frozenset[int]:
        """Return the ids of the keys that are known and still valid."""
        return frozenset(filter(self.is_good, self._keys))

    @property
    def newest(self) -> int | None:
        """Return the id of the newest key that may be used now; None: no key is known."""
        return max((key_id for key_id in self.ids if key_id <= self.period), default=None)

    def is_good(self, key_id: int) -> bool:
        """Return whether a key with this id is valid; clocks differ by less than a period."""
        return -1 <= self.period - key_id <= self.KEPT

    def put(self, key_id: int, key: bytes) -> None:
        """Add a key, and remove the keys that are no longer valid."""
        self._keys[key_id] = key
        self._keys = {each: known for each, known in self._keys.items() if self.is_good(each)}

    def replace(self, keys: Mapping[int, bytes]) -> None:
        """Replace all keys by those of these that are valid."""
        self._keys = {key_id: key for key_id, key in keys.items() if self.is_good(key_id)}

    @classmethod
    def of(cls, *keys: bytes, now: Callable[[], float] = time.time) -> Self:
        """Return a ring with the keys of the current period and of the periods before it, newest first."""
        made = cls(now)
        for age, key in enumerate(keys):
            made.put(made.period - age, key)
        return made

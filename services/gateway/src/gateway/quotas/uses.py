"""Usage within a sliding window. Slots store the amounts, so that a sum needs only a few additions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A window over which usage is summed.

    Attributes:
        seconds: The length.
        slots: The number of slots. A slot leaves the window gradually, as if its usage were evenly distributed.
    """

    seconds: float
    slots: int

    @property
    def width(self) -> float:
        """Return the length of a slot in seconds."""
        return self.seconds / self.slots


MINUTE = Window(60, 12)
DAY = Window(86_400, 24)
NO_EXPIRY = Window(float("inf"), 1)
"""A window for running requests, which leave it only when they end."""


class Uses:
    """Amounts of usage by time.

    Times are seconds since 1970, so that all replicas use the same slot numbers.

    Args:
        window: The window.
        slots: The amounts by slot number.
    """

    __slots__ = ("_at", "_leaving", "_slots", "_window", "_within")

    def __init__(self, window: Window, slots: Mapping[int, int] | None = None) -> None:
        self._window = window
        self._slots = dict(slots or {})
        # A cache for the current slot `_at`: the sum of the slots within the window, and the amount of the slot
        # that is leaving. None: the cache is invalid.
        self._at: int | None = None
        self._within = self._leaving = 0

    @property
    def slots(self) -> dict[int, int]:
        """Return the amounts by slot number, including expired slots."""
        return self._slots

    def add(self, amount: int, at: float) -> None:
        """Add usage at a time. A negative amount cancels usage that was added at the same time."""
        slot = self._slot(at)
        self._slots[slot] = self._slots.get(slot, 0) + amount
        if self._at is not None and -self._window.slots < slot - self._at <= self._window.slots:
            self._within += amount
        else:
            self._at = None

    def total(self, now: float) -> float:
        """Return the usage within the window that ends now."""
        if not self._slots:
            return 0.0
        if self._window is NO_EXPIRY:
            return max(0, self._slots.get(0, 0))
        current = self._slot(now)
        if current != self._at:
            count = self._window.slots
            self._at = current
            self._within = sum(amount for slot, amount in self._slots.items() if -count < slot - current <= count)
            self._leaving = self._slots.get(current - count, 0)
        if not self._leaving:
            return max(0, self._within)
        return max(0.0, self._within + self._leaving * (1 - (now / self._window.width - current)))

    def prune(self, now: float) -> None:
        """Remove usage that has left the window or is too far in the future."""
        if self._window is not NO_EXPIRY:
            current, self._at = self._slot(now), None
            for slot in [slot for slot in self._slots if abs(slot - current) > self._window.slots]:
                del self._slots[slot]

    def _slot(self, at: float) -> int:
        return 0 if self._window is NO_EXPIRY else int(at // self._window.width)

    def _in_window(self, now: float) -> Iterable[tuple[int, float]]:
        """Yield the number of each slot in the window, and the part of its amount that is within the window.

        Clocks of replicas differ, so a slot may be slightly in the future. A slot that is further ahead was written
        before a clock was set back. This method ignores it, because it would block its holder until that time.
        """
        current = self._slot(now)
        oldest, latest = current - self._window.slots, current + self._window.slots
        for slot, amount in self._slots.items():
            if slot > latest:
                continue
            if slot > oldest:
                yield slot, amount
            elif slot == oldest:
                yield slot, amount * (1 - (now / self._window.width - current))


def seconds_until(uses: Iterable[Uses], window: Window, excess: float, now: float) -> float:
    """Return the seconds until an amount has left the window. Return the window's length if it contains less.

    Args:
        uses: The usage of all replicas.
        window: Their window.
        excess: The amount that must leave.
        now: Seconds since 1970.
    """
    if excess <= 0:
        return 0.0
    if window is NO_EXPIRY:
        return 1.0  # the end of a running request cannot be predicted
    amounts: dict[int, float] = {}
    for replica_uses in uses:
        for slot, amount in replica_uses._in_window(now):  # a private method of this module
            amounts[slot] = amounts.get(slot, 0.0) + amount
    for slot in sorted(amounts):
        amount = amounts[slot]
        if amount <= 0:
            continue
        begin = max(now, (slot + window.slots) * window.width)
        end = (slot + window.slots + 1) * window.width
        if excess <= amount:
            return begin + (end - begin) * (excess / amount) - now
        excess -= amount
    return window.seconds

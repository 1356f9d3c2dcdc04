"""Usage within a sliding window, stored in slots: a sum costs a few additions, for any amount of usage."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A window over which usage is summed.

    Attributes:
        seconds: Its length.
        slots: The number of its parts. A part leaves the window gradually, as if its usage were evenly distributed.
    """

    seconds: float
    slots: int

    @property
    def width(self) -> float:
        """Return the seconds of a slot."""
        return self.seconds / self.slots


MINUTE = Window(60, 12)
DAY = Window(86_400, 24)
PRESENT = Window(float("inf"), 1)
"""A window without expiry: for running requests."""


class Uses:
    """Amounts of usage by time.

    Times are seconds since 1970, so that replicas number the slots alike.

    Args:
        window: The window.
        slots: Amounts by the slots' numbers.
    """

    __slots__ = ("_at", "_leaving", "_slots", "_window", "_within")

    def __init__(self, window: Window, slots: Mapping[int, int] | None = None) -> None:
        self._window = window
        self._slots = dict(slots or {})
        # The sum of the slots wholly within the window, and the leaving slot, both for one slot number; None: not
        # computed.
        self._at: int | None = None
        self._within = self._leaving = 0

    @property
    def slots(self) -> dict[int, int]:
        """Return the amounts by the slots' numbers, including older ones."""
        return self._slots

    def add(self, amount: int, at: float) -> None:
        """Add usage at a time; a negative amount takes back usage of that time."""
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
        if self._window is PRESENT:
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

    def forget(self, now: float) -> None:
        """Remove usage that has left the window, or is too far in the future."""
        if self._window is not PRESENT:
            current, self._at = self._slot(now), None
            for slot in [slot for slot in self._slots if abs(slot - current) > self._window.slots]:
                del self._slots[slot]

    def _slot(self, at: float) -> int:
        return 0 if self._window is PRESENT else int(at // self._window.width)

    def _in_window(self, now: float) -> Iterable[tuple[int, float]]:
        """Yield the slots and the share of each that is within the window.

        Clocks of replicas differ, so a slot may be slightly in the future. A slot further ahead was written before
        the clock was set back, and would block its user until then; it is ignored.
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
    """Return the seconds until this much has left the window; the window's length if that is impossible.

    Args:
        uses: The uses that count together.
        window: Their window.
        excess: The amount that must leave.
        now: Seconds since 1970.
    """
    if excess <= 0:
        return 0.0
    if window is PRESENT:
        return 1.0  # when a request ends, which is not known
    left: dict[int, float] = {}
    for each in uses:
        for slot, amount in each._in_window(now):  # the method belongs to this module
            left[slot] = left.get(slot, 0.0) + amount
    for slot in sorted(left):
        amount = left[slot]
        if amount <= 0:
            continue
        begin = max(now, (slot + window.slots) * window.width)
        end = (slot + window.slots + 1) * window.width
        if excess <= amount:
            return begin + (end - begin) * (excess / amount) - now
        excess -= amount
    return window.seconds

"""What was used within a sliding window, kept in slots: a sum costs a few additions, however much was used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Over which uses are added up.

    Attributes:
        seconds: How long it is.
        slots: In how many parts it moves on. A part that leaves it does so little by little, as if what was used in
            it had been used evenly.
    """

    seconds: float
    slots: int

    @property
    def width(self) -> float:
        """Seconds of a slot."""
        return self.seconds / self.slots


MINUTE = Window(60, 12)
DAY = Window(86_400, 24)
PRESENT = Window(float("inf"), 1)
"""Nothing leaves it by itself: for what runs at once."""


class Uses:
    """Amounts that were used, by the time of their use.

    Times are seconds since 1970, so that replicas number the slots alike.

    Args:
        window: Over which they are added up.
        slots: Amounts by the slots' numbers.
    """

    __slots__ = ("_slots", "_window")

    def __init__(self, window: Window, slots: Mapping[int, int] | None = None) -> None:
        self._window = window
        self._slots = dict(slots or {})

    @property
    def slots(self) -> dict[int, int]:
        """Amounts by the slots' numbers, older ones too."""
        return self._slots

    def add(self, amount: int, at: float) -> None:
        """Adds what was used at a time; what is negative takes back what was added for that time."""
        slot = self._slot(at)
        self._slots[slot] = self._slots.get(slot, 0) + amount

    def total(self, now: float) -> float:
        """What was used within the window that ends now."""
        if not self._slots:
            return 0.0
        if self._window is PRESENT:
            return max(0, self._slots.get(0, 0))
        return max(0.0, sum(amount for _, amount in self._in_window(now)))

    def forget(self, now: float) -> None:
        """Lets go of what has left the window."""
        if self._window is not PRESENT:
            oldest = self._slot(now) - self._window.slots
            for slot in [slot for slot in self._slots if slot < oldest]:
                del self._slots[slot]

    def _slot(self, at: float) -> int:
        return 0 if self._window is PRESENT else int(at // self._window.width)

    def _in_window(self, now: float) -> Iterable[tuple[int, float]]:
        """Slots, and how much of each is within."""
        current = self._slot(now)
        oldest = current - self._window.slots
        for slot, amount in self._slots.items():
            if slot > oldest:
                yield slot, amount
            elif slot == oldest:
                yield slot, amount * (1 - (now / self._window.width - current))


def seconds_until(uses: Iterable[Uses], window: Window, excess: float, now: float) -> float:
    """Seconds until so much has left the window; the window's length where it never will.

    Args:
        uses: Those that count together.
        window: Theirs.
        excess: How much must go.
        now: Seconds since 1970.
    """
    if excess <= 0:
        return 0.0
    if window is PRESENT:
        return 1.0  # when something ends; nobody knows
    left: dict[int, float] = {}
    for each in uses:
        for slot, amount in each._in_window(now):  # a function of this class's own
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

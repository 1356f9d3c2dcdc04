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

    __slots__ = ("_at", "_leaving", "_slots", "_window", "_within")

    def __init__(self, window: Window, slots: Mapping[int, int] | None = None) -> None:
        self._window = window
        self._slots = dict(slots or {})
        # The sum of the slots that are wholly within, and the one that leaves, as of a slot; none: to be added up.
        self._at: int | None = None
        self._within = self._leaving = 0

    @property
    def slots(self) -> dict[int, int]:
        """Amounts by the slots' numbers, older ones too."""
        return self._slots

    def add(self, amount: int, at: float) -> None:
        """Adds what was used at a time; what is negative takes back what was added for that time."""
        slot = self._slot(at)
        self._slots[slot] = self._slots.get(slot, 0) + amount
        if self._at is not None and -self._window.slots < slot - self._at <= self._window.slots:
            self._within += amount
        else:
            self._at = None

    def total(self, now: float) -> float:
        """What was used within the window that ends now."""
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
        """Lets go of what has left the window, or is too far ahead of it."""
        if self._window is not PRESENT:
            current, self._at = self._slot(now), None
            for slot in [slot for slot in self._slots if abs(slot - current) > self._window.slots]:
                del self._slots[slot]

    def _slot(self, at: float) -> int:
        return 0 if self._window is PRESENT else int(at // self._window.width)

    def _in_window(self, now: float) -> Iterable[tuple[int, float]]:
        """Slots, and how much of each is within. Replicas' clocks differ, so that slots may be a little ahead; what
        is further ahead was written before the clock was set back, and would keep its user out until then.
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

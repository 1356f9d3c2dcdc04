"""One measure of one holder: local usage, the usage of other replicas, and the remaining room."""

from collections.abc import Iterable, Mapping

from gateway.quotas.limits import Holder, Limits, Measure
from gateway.quotas.uses import Uses, seconds_until

_FIRST_GUESS = 256
_WEIGHT = 0.2


class Meter:
    """Counts one measure.

    No replica waits for another one. Each replica may use an equal share of the remaining room before the others
    know of this usage. Together they stay within the limit if the usage arrives before the next share begins. A
    replica begins a new share when it receives its own message: then all earlier messages have arrived.

    Args:
        measure: The measure.
    """

    __slots__ = ("_measure", "_publishing", "_unpublished", "mine", "others")

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.mine = Uses(measure.window)
        self.others: dict[str, Uses] = {}
        self._unpublished = 0
        self._publishing = 0

    def add(self, amount: int, at: float) -> None:
        """Count local usage at a time (`Uses.add`)."""
        self.mine.add(amount, at)
        self._unpublished += amount

    def total(self, now: float) -> float:
        """Return the usage of all replicas, as far as it is known here."""
        total = self.mine.total(now)
        for uses in self.others.values():
            total += uses.total(now)
        return total

    def takes(self, amount: int, limit: int, now: float, replicas: int, *, alone: bool) -> bool:
        """Return whether this replica may use this much more.

        Args:
            amount: The amount; more than the limit counts as the limit, else it would never be admitted.
            limit: The limit of all replicas together.
            now: Seconds since 1970.
            replicas: The number of replicas, or the last known number.
            alone: Other replicas cannot be reached: each replica uses at most an equal share of the limit.
        """
        amount = min(amount, limit)
        if alone:
            mine = self.mine.total(now)
            return mine + amount <= limit / replicas or (mine == 0 and amount > limit / replicas)
        total = self.total(now)
        if total + amount > limit:
            return False
        unpublished = max(0, self._unpublished)
        room = limit - (total - unpublished)
        # The first use may exceed a share: else no replica could use the last remainder.
        return unpublished == 0 or unpublished + amount <= room / replicas

    def wait(self, amount: int, limit: int, now: float) -> float:
        """Return the seconds until this much is available, if there is no further usage."""
        return self.until(self.total(now) + min(amount, limit) - limit, now)

    def until(self, excess: float, now: float) -> float:
        """Return the seconds until this much usage has left the window."""
        return seconds_until((self.mine, *self.others.values()), self._measure.window, excess, now)

    def publish(self) -> dict[int, int]:
        """Return the usage to publish, and begin to publish it."""
        self._publishing = self._unpublished
        return self.mine.slots

    def confirm(self) -> None:
        """Confirm that the published usage has arrived."""
        self._unpublished -= self._publishing
        self._publishing = 0

    def heard(self, replica: str, slots: Mapping[int, int]) -> None:
        """Receive the usage of another replica."""
        self.others[replica] = Uses(self._measure.window, slots)

    def tidy(self, now: float, replicas: Iterable[str]) -> None:
        """Remove usage that no longer counts, and the running requests of replicas that are gone."""
        self.mine.forget(now)
        for replica, uses in list(self.others.items()):
            uses.forget(now)
            gone = self._measure is Measure.RUNNING and replica not in replicas
            if gone or not any(uses.slots.values()):
                del self.others[replica]

    @property
    def empty(self) -> bool:
        """Return whether nothing is counted."""
        return not self.others and not any(self.mine.slots.values())


class Tally:
    """All meters of one holder.

    Args:
        holder: The id of the holder (`keys.quota_holder`).

    Attributes:
        id: The id of the holder.
        holder: The holder, once it has sent a request to this replica.
        meters: By measure.
        answer: The expected tokens of a running answer: the mean of the last answers.
        publishing: Its usage is being published.
    """

    __slots__ = ("_answers", "answer", "holder", "id", "meters", "publishing")

    def __init__(self, holder: str) -> None:
        self.id = holder
        self.holder: Holder | None = None
        self.meters = {measure: Meter(measure) for measure in Measure}
        self.answer = float(_FIRST_GUESS)
        self._answers = 0
        self.publishing = False

    def answered(self, tokens: int) -> None:
        """Update the mean number of tokens of an answer."""
        self._answers += 1
        self.answer += (tokens - self.answer) * max(_WEIGHT, 1 / self._answers)

    def shares(self, limits: Limits, now: float) -> Iterable[tuple[Measure, float]]:
        """Yield the used share of each limit, 1 being all of it."""
        for measure, limit in limits.items():
            yield measure, self.meters[measure].total(now) / limit

    @property
    def empty(self) -> bool:
        """Return whether nothing is counted for the holder."""
        return not self.publishing and all(meter.empty for meter in self.meters.values())

"""One measure of one holder: what was let in here, what was heard of other replicas, and what room that leaves."""

from collections.abc import Iterable, Mapping

from gateway.quotas.limits import Holder, Limits, Measure
from gateway.quotas.uses import Uses, seconds_until

_FIRST_GUESS = 256
_WEIGHT = 0.2


class Meter:
    """Counts one measure.

    No replica waits for another one. Of the room that all of them know of, each takes its even share before the
    others have heard what it took: together they take no more than there is, as long as news are there before the
    next share is begun. A replica begins one when its own news came back, behind all that was told before.

    Args:
        measure: What is counted.
    """

    __slots__ = ("_measure", "_telling", "_untold", "mine", "others")

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.mine = Uses(measure.window)
        self.others: dict[str, Uses] = {}
        self._untold = 0
        self._telling = 0

    def add(self, amount: int, at: float) -> None:
        """Counts what was used here at a time (`Uses.add`)."""
        self.mine.add(amount, at)
        self._untold += amount

    def total(self, now: float) -> float:
        """What all replicas used, as far as it is known here."""
        total = self.mine.total(now)
        for uses in self.others.values():
            total += uses.total(now)
        return total

    def takes(self, amount: int, limit: int, now: float, replicas: int, *, alone: bool) -> bool:
        """Whether so much more may be used here.

        Args:
            amount: How much; more than the limit is taken for the limit, or it would never be let in.
            limit: What all replicas may use together.
            now: Seconds since 1970.
            replicas: How many there are, or were when others were last heard of.
            alone: Others cannot be heard now: each keeps to its even share of the limit.
        """
        amount = min(amount, limit)
        if alone:
            mine = self.mine.total(now)
            return mine + amount <= limit / replicas or (mine == 0 and amount > limit / replicas)
        total = self.total(now)
        if total + amount > limit:
            return False
        untold = max(0, self._untold)
        room = limit - (total - untold)
        # The first one may be more than a share: else nobody got the last that is left.
        return untold == 0 or untold + amount <= room / replicas

    def wait(self, amount: int, limit: int, now: float) -> float:
        """Seconds until so much will be there, if nobody uses more."""
        return self.until(self.total(now) + min(amount, limit) - limit, now)

    def until(self, excess: float, now: float) -> float:
        """Seconds until so much is used no more."""
        return seconds_until((self.mine, *self.others.values()), self._measure.window, excess, now)

    def tell(self) -> dict[int, int]:
        """What the others are told from now on."""
        self._telling = self._untold
        return self.mine.slots

    def told(self) -> None:
        """The others know it, too."""
        self._untold -= self._telling
        self._telling = 0

    def heard(self, replica: str, slots: Mapping[int, int]) -> None:
        """What another replica used."""
        self.others[replica] = Uses(self._measure.window, slots)

    def tidy(self, now: float, replicas: Iterable[str]) -> None:
        """Lets go of what counts no more: nothing runs on a replica that is gone."""
        self.mine.forget(now)
        for replica, uses in list(self.others.items()):
            uses.forget(now)
            gone = self._measure is Measure.RUNNING and replica not in replicas
            if gone or not any(uses.slots.values()):
                del self.others[replica]

    @property
    def empty(self) -> bool:
        """Nothing is counted."""
        return not self.others and not any(self.mine.slots.values())


class Tally:
    """All that is counted of one holder.

    Args:
        holder: Who it is (`keys.quota_holder`).

    Attributes:
        id: As given.
        holder: The same one, once it has asked here.
        meters: By measure.
        answer: Tokens that an answer is expected to take, until it has ended: the mean of the last ones.
        telling: The others are being told of it.
    """

    __slots__ = ("_answers", "answer", "holder", "id", "meters", "telling")

    def __init__(self, holder: str) -> None:
        self.id = holder
        self.holder: Holder | None = None
        self.meters = {measure: Meter(measure) for measure in Measure}
        self.answer = float(_FIRST_GUESS)
        self._answers = 0
        self.telling = False

    def answered(self, tokens: int) -> None:
        """Learns how many tokens answers take."""
        self._answers += 1
        self.answer += (tokens - self.answer) * max(_WEIGHT, 1 / self._answers)

    def shares(self, limits: Limits, now: float) -> Iterable[tuple[Measure, float]]:
        """How much of each limit is used, 1 being all of it."""
        for measure, limit in limits.items():
            yield measure, self.meters[measure].total(now) / limit

    @property
    def empty(self) -> bool:
        """Nothing is counted of it."""
        return not self.telling and all(meter.empty for meter in self.meters.values())

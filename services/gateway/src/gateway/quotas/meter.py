"""Counts the usage of one holder of quotas: by this replica and by other replicas, for each measure."""

from collections.abc import Iterable, Mapping

from gateway.quotas.limits import Holder, Limits, Measure
from gateway.quotas.uses import Uses, seconds_until

_INITIAL_ANSWER_TOKENS = 256
_MINIMUM_WEIGHT = 0.2
"""The minimum weight of an answer in the moving mean."""


class Meter:
    """Counts one measure of one holder.

    No replica waits for another replica. Each replica may use an equal share of the unused part of the limit before
    the other replicas receive this usage. All replicas together remain within the limit if the usage arrives before
    the next share begins, except that the first use of a share may exceed the share. A replica begins a new share
    when it receives its own message: then all earlier messages have arrived.

    Args:
        measure: The measure.

    Attributes:
        local: The usage of this replica.
        remote: The usage of the other replicas, by replica.
    """

    __slots__ = ("_measure", "_publishing", "_unpublished", "local", "remote")

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.local = Uses(measure.window)
        self.remote: dict[str, Uses] = {}
        self._unpublished = 0
        self._publishing = 0

    def add(self, amount: int, at: float) -> None:
        """Count local usage at a time in seconds since 1970 (`Uses.add`)."""
        self.local.add(amount, at)
        self._unpublished += amount

    def total(self, now: float) -> float:
        """Return the usage of all replicas that this replica has received."""
        total = self.local.total(now)
        for uses in self.remote.values():
            total += uses.total(now)
        return total

    def has_capacity(self, amount: int, limit: int, now: float, replicas: int, *, disconnected: bool) -> bool:
        """Return whether this replica may use an additional amount.

        Args:
            amount: The amount. An amount above the limit counts as the limit; otherwise it would never fit.
            limit: The limit of all replicas together.
            now: Seconds since 1970.
            replicas: The number of replicas.
            disconnected: Whether the connection to the other replicas is lost. This replica then uses at most an
                equal share of the limit.
        """
        amount = min(amount, limit)
        if disconnected:
            local = self.local.total(now)
            return local + amount <= limit / replicas or (local == 0 and amount > limit / replicas)
        total = self.total(now)
        if total + amount > limit:
            return False
        unpublished = max(0, self._unpublished)
        unused = limit - (total - unpublished)
        # The first use may exceed a share. Otherwise no replica could use the last remainder.
        return unpublished == 0 or unpublished + amount <= unused / replicas

    def seconds_until_capacity(self, amount: int, limit: int, now: float) -> float:
        """Return the seconds until this amount is available if no further usage occurs."""
        return self.seconds_until_expired(self.total(now) + min(amount, limit) - limit, now)

    def seconds_until_expired(self, excess: float, now: float) -> float:
        """Return the seconds until this amount of usage has left the window."""
        return seconds_until((self.local, *self.remote.values()), self._measure.window, excess, now)

    def publish(self) -> dict[int, int]:
        """Return the amounts by slot for publication. `confirm` ends the publication."""
        self._publishing = self._unpublished
        return self.local.slots

    def confirm(self) -> None:
        """Confirm that the published usage has arrived."""
        self._unpublished -= self._publishing
        self._publishing = 0

    def receive(self, replica: str, slots: Mapping[int, int]) -> None:
        """Receive the usage of another replica."""
        self.remote[replica] = Uses(self._measure.window, slots)

    def prune(self, now: float, replicas: Iterable[str]) -> None:
        """Remove expired usage, and the running requests of replicas that do not exist any more.

        Args:
            now: Seconds since 1970.
            replicas: The ids of the other replicas that exist now.
        """
        self.local.prune(now)
        for replica, uses in list(self.remote.items()):
            uses.prune(now)
            is_removed = self._measure is Measure.RUNNING and replica not in replicas
            if is_removed or not any(uses.slots.values()):
                del self.remote[replica]

    @property
    def empty(self) -> bool:
        """Return whether the meter counts no usage."""
        return not self.remote and not any(self.local.slots.values())


class Tally:
    """All meters of one holder.

    Args:
        holder_id: The id of the holder (`keys.quota_holder`).

    Attributes:
        id: The id of the holder.
        holder: The holder; None until the holder sends a request to this replica.
        meters: The meters by measure.
        answer_tokens: The expected number of tokens of a running answer: a moving mean of the last answers.
        publishing: Whether the usage is being published.
    """

    __slots__ = ("_answers", "answer_tokens", "holder", "id", "meters", "publishing")

    def __init__(self, holder_id: str) -> None:
        self.id = holder_id
        self.holder: Holder | None = None
        self.meters = {measure: Meter(measure) for measure in Measure}
        self.answer_tokens = float(_INITIAL_ANSWER_TOKENS)
        self._answers = 0
        self.publishing = False

    def record_answer(self, tokens: int) -> None:
        """Update the mean with the number of tokens of an answer."""
        self._answers += 1
        self.answer_tokens += (tokens - self.answer_tokens) * max(_MINIMUM_WEIGHT, 1 / self._answers)

    def shares(self, limits: Limits, now: float) -> Iterable[tuple[Measure, float]]:
        """Yield the used share of each limit; 1 is the whole limit."""
        for measure, limit in limits.items():
            yield measure, self.meters[measure].total(now) / limit

    @property
    def empty(self) -> bool:
        """Return whether the tally counts no usage."""
        return not self.publishing and all(meter.empty for meter in self.meters.values())

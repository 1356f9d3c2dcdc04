"""The usage of every tenant, key and user, and the decision whether a request may use more."""

import functools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

import msgspec
from servicekit import keys, metrics
from servicekit.errors import RateLimited

from gateway.identity.caller import Caller
from gateway.quotas.limits import Holder, Limits, Measure, Quotas, holders
from gateway.quotas.meter import Meter, Tally

REPLICA_SECONDS = 10.0
"""A replica without a message for this many seconds is treated as gone."""

_MOST_HOLDERS = 20_000
_WORDS = {
    Measure.RUNNING: ("requests at once", "concurrent"),
    Measure.REQUESTS: ("requests per minute", "requests"),
    Measure.TOKENS: ("tokens per minute", "tokens"),
    Measure.INGEST: ("bytes of documents per day", "ingest"),
}
# The measures for which OpenAI's clients read headers.
_HEADERS = ((Measure.REQUESTS, "requests"), (Measure.TOKENS, "tokens"))

_refused = metrics.counter(
    __name__,
    "causeway.quota.refusals",
    "{request}",
    "Requests that were refused over a quota, by the exhausted measure.",
)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, dict[int, int]]).decode


class Admitted:
    """A request that was admitted.

    Args:
        charges: The estimated usage: meter, measure, amount.
        tallies: The tallies that it counts for.
        now: Returns seconds since 1970.
        changed: Called with the tallies that have unpublished usage.
        model: It calls a model.

    Attributes:
        headers: The ``x-ratelimit-…`` headers of its answer.
    """

    __slots__ = ("_begin", "_changed", "_charges", "_model", "_now", "_tallies", "headers")

    def __init__(
        self,
        charges: list[tuple[Meter, Measure, int]],
        tallies: list[Tally],
        now: Callable[[], float],
        changed: Callable[[Iterable[Tally]], None],
        *,
        model: bool,
    ) -> None:
        self._charges = charges
        self._tallies = tallies
        self._now = now
        self._begin = now()
        self._changed = changed
        self._model = model
        self.headers: dict[str, str] = {}
        for meter, _, amount in charges:
            meter.add(amount, self._begin)
        changed(tallies)

    def end(self, tokens: int, ingested: int) -> None:
        """End the request: replace the estimated usage by the real one."""
        now = self._now()
        used = {Measure.TOKENS: tokens, Measure.INGEST: ingested, Measure.RUNNING: 0}
        for meter, measure, amount in self._charges:
            if measure in used:
                meter.add(-amount, self._begin)
                meter.add(used[measure], now)
        if self._model and tokens:
            for tally in self._tallies:
                tally.answered(tokens)
        self._changed(self._tallies)


class Ledger:
    """Decides on requests by local knowledge, without waiting.

    `clients.quota_share` exchanges the usage with the other replicas.

    Args:
        quotas: Returns the current limits.
        now: Returns seconds since 1970.

    Attributes:
        replica: Id of this replica of the gateway.
        on_change: Called when there is usage to publish.
    """

    def __init__(self, quotas: Callable[[], Quotas], now: Callable[[], float] = time.time) -> None:
        self._quotas = quotas
        self._now = now
        self._tallies: dict[str, Tally] = {}
        self._changed: dict[str, Tally] = {}
        self._id = functools.lru_cache(_MOST_HOLDERS)(keys.quota_holder)
        self._others: dict[str, float] = {}
        self._alone = True
        self._label = metrics.Bounded()
        self.replica = uuid.uuid4().hex
        self.on_change: Callable[[], None] = lambda: None

    @property
    def replicas(self) -> int:
        """Return the number of replicas, or the last known number if the others cannot be reached."""
        return 1 + len(self._others)

    def admit(self, caller: Caller, *, model: bool, ingest: int | None) -> Admitted | None:
        """Admit a request; return None if its caller has no limits.

        Args:
            caller: The caller.
            model: It calls a model, so it will use tokens.
            ingest: The size of its documents in bytes; None: it has none.

        Raises:
            RateLimited: The request is over a quota.
        """
        quotas, now = self._quotas(), self._now()
        limited = [(self._known(holder), limits) for holder in holders(caller) if (limits := quotas.of(holder))]
        if not limited:
            return None
        charges: list[tuple[Meter, Measure, int]] = []
        for tally, limits in limited:
            for measure, limit in limits.items():
                amount = _amount(measure, tally, model=model, ingest=ingest)
                if amount is None:
                    continue
                meter = tally.meters[measure]
                if not meter.takes(amount, limit, now, self.replicas, alone=self._alone):
                    raise self._refusal(tally, measure, limit, meter.wait(amount, limit, now), limited)
                charges.append((meter, measure, min(amount, limit)))
        tallies = [tally for tally, _ in limited]
        admitted = Admitted(charges, tallies, self._now, self._change, model=model)
        admitted.headers = self._headers(limited, now)
        return admitted

    def count(self, caller: Caller, tokens: int) -> None:
        """Count the tokens of an answer whose request was admitted earlier. Nothing is refused.

        Args:
            caller: The caller of the request.
            tokens: The tokens of the prompt and the answer.
        """
        quotas, now = self._quotas(), self._now()
        counted = []
        for holder in holders(caller):
            if tokens and Measure.TOKENS in quotas.of(holder):
                tally = self._known(holder)
                tally.meters[Measure.TOKENS].add(tokens, now)
                tally.answered(tokens)
                counted.append(tally)
        self._change(counted)

    def _refusal(
        self, tally: Tally, measure: Measure, limit: int, wait: float, limited: list[tuple[Tally, Limits]]
    ) -> RateLimited:
        holder = tally.holder
        assert holder is not None
        words, reason = _WORDS[measure]
        _refused.add(1, {"causeway.tenant": self._label.known(holder.tenant), "causeway.reason": reason})
        return RateLimited(
            f"{holder} is over its quota of {limit} {words}.",
            resource=measure.value,
            # If the limit has room, only this replica's share is used up. A new share begins within a moment.
            retry_after=max(1.0, wait),
            details={"quota": holder.kind, "limit": str(limit), **self._headers(limited, self._now())},
        )

    def _headers(self, limited: list[tuple[Tally, Limits]], now: float) -> dict[str, str]:
        """Return the headers of the limit with the least remaining room."""
        headers: dict[str, str] = {}
        for measure, name in _HEADERS:
            left = [
                (limit - (total := tally.meters[measure].total(now)), limit, total, tally.meters[measure])
                for tally, limits in limited
                if (limit := limits.get(measure)) is not None
            ]
            if not left:
                continue
            remaining, limit, total, meter = min(left, key=lambda each: each[0])
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(remaining)))
            headers[f"x-ratelimit-reset-{name}"] = _duration(meter.until(total, now))
        return headers

    def joined(self, members: Iterable[str]) -> None:
        """Connect: these replicas are present, and their earlier usage is received."""
        self._others = {}
        for member in members:
            self.met(member)
        self._alone = False
        for tally in self._tallies.values():
            tally.publishing = False
        self._change(self._tallies.values())  # the store may have lost what was published

    def left(self) -> None:
        """Disconnect: the other replicas cannot be reached."""
        self._alone = True

    def met(self, replica: str) -> None:
        """Add a replica."""
        if replica != self.replica:
            self._others[replica] = time.monotonic()

    def parted(self, replica: str) -> None:
        """Remove a replica."""
        self._others.pop(replica, None)

    def hear(self, replica: str, holder: str, raw: bytes) -> None:
        """Receive the usage of a replica; this replica's own usage confirms that all earlier messages have arrived.

        Args:
            replica: The publisher.
            holder: The holder of the quota (`keys.quota_holder`).
            raw: Measure → slot → amount (`uses.Uses`), as JSON.

        Raises:
            ValueError: The usage is invalid.
        """
        news = _decode(raw)
        tally = self._tally(holder)
        if replica == self.replica:
            if tally.publishing:
                tally.publishing = False
                for meter in tally.meters.values():
                    meter.confirm()
                if holder in self._changed:
                    self.on_change()
            return
        for measure, meter in tally.meters.items():
            meter.heard(replica, news.get(measure.value, {}))

    def news(self) -> Iterator[tuple[str, bytes]]:
        """Yield the unpublished usage by holder, and mark it as published."""
        for holder, tally in list(self._changed.items()):
            if not tally.publishing:
                del self._changed[holder]
                tally.publishing = True
                uses = {
                    measure.value: slots for measure, meter in tally.meters.items() if (slots := meter.publish())
                }
                yield holder, _encode(uses)

    def tidy(self) -> None:
        """Remove usage that no longer counts."""
        now, long_ago = self._now(), time.monotonic() - REPLICA_SECONDS
        if not self._alone:  # an unreachable replica counts as present
            for replica in [replica for replica, heard in self._others.items() if heard < long_ago]:
                self.parted(replica)
        for holder, tally in list(self._tallies.items()):
            for meter in tally.meters.values():
                meter.tidy(now, self._others)
            if tally.empty and holder not in self._changed:
                del self._tallies[holder]

    def shares(self) -> Iterator[tuple[float, dict[str, str]]]:
        """Yield the used share of each tenant's limits, with labels for metrics."""
        now, quotas = self._now(), self._quotas()
        for tally in self._tallies.values():
            holder = tally.holder
            if holder is None or holder.kind != "tenant":
                continue
            if (tenant := self._label.known(holder.tenant)) != metrics.OTHER:
                for measure, share in tally.shares(quotas.of(holder), now):
                    yield round(share, 4), {"causeway.tenant": tenant, "causeway.quota": measure.value}

    def _change(self, tallies: Iterable[Tally]) -> None:
        for tally in tallies:
            self._changed[tally.id] = tally
        self.on_change()

    def _known(self, holder: Holder) -> Tally:
        tally = self._tally(self._id(holder.kind, holder.tenant, holder.name))
        tally.holder = holder
        return tally

    def _tally(self, holder: str) -> Tally:
        tally = self._tallies.get(holder)
        if tally is None:
            if len(self._tallies) >= _MOST_HOLDERS:
                oldest = next(iter(self._tallies))  # the first one that was added
                del self._tallies[oldest]
                self._changed.pop(oldest, None)
            tally = self._tallies[holder] = Tally(holder)
        return tally


def _amount(measure: Measure, tally: Tally, *, model: bool, ingest: int | None) -> int | None:
    match measure:
        case Measure.TOKENS:
            return max(1, round(tally.answer)) if model else None
        case Measure.INGEST:
            return None if ingest is None else max(1, ingest)
    return 1


def _duration(seconds: float) -> str:
    """Return a duration in OpenAI's format: ``20ms``, ``3s``, ``1m0s``."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def watch(ledger: Ledger) -> None:
    """Register the metric of each tenant's used share of its quotas."""
    metrics.observed(
        __name__,
        "causeway.quota.used",
        "",
        "Share of a tenant's quota that is used, 1 being all of it.",
        ledger.shares,
    )

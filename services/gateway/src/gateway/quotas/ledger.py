"""Counts the usage of tenants, keys and users, and decides whether a request may use more."""

import functools
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec
from servicekit import keys, metrics
from servicekit.errors import RateLimited

from gateway.identity.caller import Caller
from gateway.quotas.limits import Holder, Limits, Measure, Quotas, holders
from gateway.quotas.meter import Meter, Tally

REPLICA_SECONDS = 10.0
"""After this many seconds without a heartbeat, the ledger removes a replica."""

_MAX_HOLDERS = 20_000
"""The maximum number of tenants, of keys and of users whose usage the ledger keeps."""

_DESCRIPTIONS = {
    Measure.RUNNING: ("requests at once", "concurrent"),
    Measure.REQUESTS: ("requests per minute", "requests"),
    Measure.TOKENS: ("tokens per minute", "tokens"),
    Measure.INGEST: ("bytes of documents per day", "ingest"),
}
# OpenAI's clients read headers for these measures.
_HEADERS = ((Measure.REQUESTS, "requests"), (Measure.TOKENS, "tokens"))

_refusals = metrics.counter(
    __name__,
    "causeway.quota.refusals",
    "{request}",
    "Requests that were refused because a quota was exhausted, by measure.",
)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, dict[int, int]]).decode


class Admitted:
    """A request that was admitted.

    Args:
        charges: The estimated usage. Each entry has a meter, its measure and an amount.
        tallies: The tallies that count the request.
        now: Returns seconds since 1970.
        changed: Called with the tallies that have unpublished usage.
        calls_model: Whether the request calls a model.

    Attributes:
        headers: The ``x-ratelimit-…`` headers of the response.
    """

    __slots__ = ("_calls_model", "_changed", "_charges", "_now", "_started_at", "_tallies", "headers")

    def __init__(
        self,
        charges: list[tuple[Meter, Measure, int]],
        tallies: list[Tally],
        now: Callable[[], float],
        changed: Callable[[Iterable[Tally]], None],
        *,
        calls_model: bool,
    ) -> None:
        self._charges = charges
        self._tallies = tallies
        self._now = now
        self._started_at = now()
        self._changed = changed
        self._calls_model = calls_model
        self.headers: dict[str, str] = {}
        for meter, _, amount in charges:
            meter.add(amount, self._started_at)
        changed(tallies)

    def end(self, tokens: int, ingested: int) -> None:
        """Replace the estimated usage by the actual usage after the request has ended."""
        now = self._now()
        used = {Measure.TOKENS: tokens, Measure.INGEST: ingested, Measure.RUNNING: 0}
        for meter, measure, amount in self._charges:
            if measure in used:
                meter.add(-amount, self._started_at)
                meter.add(used[measure], now)
        if self._calls_model and tokens:
            for tally in self._tallies:
                tally.record_answer(tokens)
        self._changed(self._tallies)


class Ledger:
    """Admits or refuses requests according to the usage that this replica knows. It never waits for other replicas.

    `clients.quota_share` exchanges the usage with the other replicas.

    Args:
        quotas: Returns the current limits.
        now: Returns seconds since 1970.

    Attributes:
        replica: The id of this replica of the gateway.
        on_change: Called when the ledger has usage to publish.
    """

    def __init__(self, quotas: Callable[[], Quotas], now: Callable[[], float] = time.time) -> None:
        self._quotas = quotas
        self._now = now
        # By kind and id, in the order of their last use. Many holders of one kind do not displace those of another.
        self._tallies: defaultdict[str, dict[str, Tally]] = defaultdict(dict)
        self._changed: dict[str, Tally] = {}
        self._id = functools.lru_cache(_MAX_HOLDERS)(keys.quota_holder)
        self._peers: dict[str, float] = {}
        self._disconnected = True
        self._label = metrics.BoundedLabel()
        self.replica = uuid.uuid4().hex
        self.on_change: Callable[[], None] = lambda: None

    @property
    def replicas(self) -> int:
        """Return the number of replicas, including this one; without a connection, the last known number."""
        return 1 + len(self._peers)

    def admit(self, caller: Caller, *, calls_model: bool, ingest: int | None) -> Admitted | None:
        """Admit a request; return None if its caller has no limits.

        Args:
            caller: The caller.
            calls_model: Whether the request calls a model and so uses tokens.
            ingest: The size of the request's documents in bytes; None: no documents.

        Raises:
            RateLimited: The request would exceed a quota.
        """
        quotas, now = self._quotas(), self._now()
        limited = [(self._tally_of(holder), limits) for holder in holders(caller) if (limits := quotas.of(holder))]
        if not limited:
            return None
        charges: list[tuple[Meter, Measure, int]] = []
        for tally, limits in limited:
            for measure, limit in limits.items():
                amount = _amount(measure, tally, calls_model=calls_model, ingest=ingest)
                if amount is None:
                    continue
                meter = tally.meters[measure]
                if not meter.has_capacity(amount, limit, now, self.replicas, disconnected=self._disconnected):
                    raise self._refusal(
                        tally, measure, limit, meter.seconds_until_capacity(amount, limit, now), limited
                    )
                charges.append((meter, measure, min(amount, limit)))
        tallies = [tally for tally, _ in limited]
        admitted = Admitted(charges, tallies, self._now, self._change, calls_model=calls_model)
        admitted.headers = self._headers(limited, now)
        return admitted

    def count(self, caller: Caller, tokens: int) -> None:
        """Count the tokens of an answer whose request was admitted earlier. This method refuses nothing.

        Args:
            caller: The caller of the request.
            tokens: The number of tokens of the prompt and the answer.
        """
        quotas, now = self._quotas(), self._now()
        counted = []
        for holder in holders(caller):
            if tokens and Measure.TOKENS in quotas.of(holder):
                tally = self._tally_of(holder)
                tally.meters[Measure.TOKENS].add(tokens, now)
                tally.record_answer(tokens)
                counted.append(tally)
        self._change(counted)

    def _refusal(
        self, tally: Tally, measure: Measure, limit: int, wait: float, limited: list[tuple[Tally, Limits]]
    ) -> RateLimited:
        holder = tally.holder
        assert holder is not None
        words, reason = _DESCRIPTIONS[measure]
        _refusals.add(1, {"causeway.tenant": self._label.label_for(holder.tenant), "causeway.reason": reason})
        return RateLimited(
            f"{holder} is over its quota of {limit} {words}.",
            resource=measure.value,
            # If the limit is not reached, only this replica's share is used up. A new share begins within a second.
            retry_after=max(1.0, wait),
            details={"quota": holder.kind, "limit": str(limit), **self._headers(limited, self._now())},
        )

    def _headers(self, limited: list[tuple[Tally, Limits]], now: float) -> dict[str, str]:
        """Return the rate limit headers. They describe the limit with the smallest unused amount."""
        headers: dict[str, str] = {}
        for measure, name in _HEADERS:
            candidates = [
                (limit - (total := tally.meters[measure].total(now)), limit, total, tally.meters[measure])
                for tally, limits in limited
                if (limit := limits.get(measure)) is not None
            ]
            if not candidates:
                continue
            remaining, limit, total, meter = min(candidates, key=lambda candidate: candidate[0])
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(remaining)))
            headers[f"x-ratelimit-reset-{name}"] = _duration(meter.seconds_until_expired(total, now))
        return headers

    def connected(self, replicas: Iterable[str]) -> None:
        """Begin to share usage with these replicas, after their earlier usage was received."""
        self._peers = {}
        for replica in replicas:
            self.add_replica(replica)
        self._disconnected = False
        tallies = [tally for same_kind in self._tallies.values() for tally in same_kind.values()]
        for tally in tallies:
            tally.publishing = False
        self._change(tallies)  # the store may have lost the published usage

    def disconnected(self) -> None:
        """Note that the connection to the other replicas is lost."""
        self._disconnected = True

    def add_replica(self, replica: str) -> None:
        """Add a replica, or note that it sent a heartbeat."""
        if replica != self.replica:
            self._peers[replica] = time.monotonic()

    def remove_replica(self, replica: str) -> None:
        """Remove a replica."""
        self._peers.pop(replica, None)

    def receive(self, replica: str, holder_id: str, raw: bytes) -> None:
        """Receive the usage of a replica. This replica's own message confirms that all earlier messages arrived.

        Args:
            replica: The replica that published the usage.
            holder_id: The id of the holder of the quota (`keys.quota_holder`).
            raw: Measure → slot → amount (`uses.Uses`), as JSON.

        Raises:
            ValueError: The usage is invalid.
        """
        usage = _decode(raw)
        tally = self._tally(holder_id.partition(".")[0], holder_id)
        if replica == self.replica:
            if tally.publishing:
                tally.publishing = False
                for meter in tally.meters.values():
                    meter.confirm()
                if holder_id in self._changed:
                    self.on_change()
            return
        for measure, meter in tally.meters.items():
            meter.receive(replica, usage.get(measure.value, {}))

    def take_unpublished(self) -> Iterator[tuple[str, bytes]]:
        """Yield the unpublished usage of each holder, and mark the usage as being published."""
        for holder_id, tally in list(self._changed.items()):
            if not tally.publishing:
                del self._changed[holder_id]
                tally.publishing = True
                uses = {
                    measure.value: slots for measure, meter in tally.meters.items() if (slots := meter.publish())
                }
                yield holder_id, _encode(uses)

    def prune(self) -> None:
        """Remove replicas without heartbeats, expired usage and empty tallies."""
        now, expired_before = self._now(), time.monotonic() - REPLICA_SECONDS
        if not self._disconnected:  # without a connection, all known replicas count
            for replica in [replica for replica, seen in self._peers.items() if seen < expired_before]:
                self.remove_replica(replica)
        for same_kind in self._tallies.values():
            for holder_id, tally in list(same_kind.items()):
                for meter in tally.meters.values():
                    meter.prune(now, self._peers)
                if tally.empty and holder_id not in self._changed:
                    del same_kind[holder_id]

    def shares(self) -> Iterator[tuple[float, dict[str, str]]]:
        """Yield the used share (1 = all) of each tenant's limits, with labels for metrics."""
        now, quotas = self._now(), self._quotas()
        for tally in list(self._tallies["tenant"].values()):  # a copy, because requests change the order
            if (holder := tally.holder) is None:
                continue
            if (tenant := self._label.label_for(holder.tenant)) != metrics.OTHER:
                for measure, share in tally.shares(quotas.of(holder), now):
                    yield round(share, 4), {"causeway.tenant": tenant, "causeway.quota": measure.value}

    def _change(self, tallies: Iterable[Tally]) -> None:
        for tally in tallies:
            self._changed[tally.id] = tally
        self.on_change()

    def _tally_of(self, holder: Holder) -> Tally:
        tally = self._tally(holder.kind, self._id(holder.kind, holder.tenant, holder.name))
        tally.holder = holder
        return tally

    def _tally(self, kind: str, holder_id: str) -> Tally:
        """Return the tally of a holder. A new tally may replace the least recently used one of its kind."""
        same_kind = self._tallies[kind]
        tally = same_kind.pop(holder_id, None)
        if tally is None:
            if len(same_kind) >= _MAX_HOLDERS:
                oldest = next(iter(same_kind))
                del same_kind[oldest]
                self._changed.pop(oldest, None)
            tally = Tally(holder_id)
        same_kind[holder_id] = tally  # now the last in the dict, whose order is that of insertion
        return tally


def _amount(measure: Measure, tally: Tally, *, calls_model: bool, ingest: int | None) -> int | None:
    match measure:
        case Measure.TOKENS:
            return max(1, round(tally.answer_tokens)) if calls_model else None
        case Measure.INGEST:
            return None if ingest is None else max(1, ingest)
    return 1


def _duration(seconds: float) -> str:
    """Return a duration in OpenAI's format: ``20ms``, ``3s``, ``1m0s``."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def register_metrics(ledger: Ledger) -> None:
    """Register the metric that reports the used share of each tenant's quotas."""
    metrics.observed(
        __name__,
        "causeway.quota.used",
        "",
        "Share of a tenant's quota that is used; 1 is the whole quota.",
        ledger.shares,
    )

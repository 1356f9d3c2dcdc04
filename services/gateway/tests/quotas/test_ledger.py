"""Replicas that count quotas and exchange their usage directly. In test_quota_share.py they use NATS."""

import time
from collections.abc import Sequence

import pytest
from causeway_testing.clock import ManualClock
from gateway.identity.caller import Caller
from gateway.quotas import ledger as module
from gateway.quotas.ledger import Admitted, Ledger
from gateway.quotas.limits import Measure, Quotas, parse
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from servicekit.errors import RateLimited
from servicekit.principal import Principal

BEGIN = 1_700_000_000.0
CALLER = Caller(Principal("north", "ann"), "id", "loader")


def quotas(text: str) -> Quotas:
    return parse(text.encode(), "quotas.yaml")


def replicas(count: int, text: str, clock: ManualClock | None = None) -> list[Ledger]:
    """Return replicas that know each other."""
    limits = quotas(text)
    made = [Ledger(lambda: limits, clock or ManualClock(BEGIN)) for _ in range(count)]
    for ledger in made:
        ledger.connected([other.replica for other in made])
    return made


def publish(publisher: Ledger, all_replicas: Sequence[Ledger]) -> None:
    """Send the usage of one replica to all replicas, including itself."""
    for holder, raw in list(publisher.take_unpublished()):
        for ledger in all_replicas:
            ledger.receive(publisher.replica, holder, raw)


def admit(
    ledger: Ledger, caller: Caller = CALLER, *, calls_model: bool = True, ingest: int | None = None
) -> Admitted | None:
    try:
        return ledger.admit(caller, calls_model=calls_model, ingest=ingest)
    except RateLimited:
        return None


def refusal(ledger: Ledger, *, ingest: int | None = None) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        ledger.admit(CALLER, calls_model=True, ingest=ingest)
    return caught.value


def test_a_single_replica_admits_the_whole_limit() -> None:
    """A single replica admits all requests within the limit. The error of the next one has the time to wait."""
    clock = ManualClock(BEGIN)
    [ledger] = replicas(1, "keys: {loader: {requests_per_minute: 5}}", clock)
    left = []
    for _ in range(5):
        admitted = admit(ledger)
        assert admitted is not None
        left.append(admitted.headers["x-ratelimit-remaining-requests"])
        clock.now += 1
    assert left == ["4", "3", "2", "1", "0"]
    error = refusal(ledger)
    assert error.message == "The API key is over its quota of 5 requests per minute."
    assert error.details["x-ratelimit-limit-requests"] == "5"
    assert error.details["x-ratelimit-remaining-requests"] == "0"
    assert error.details["x-ratelimit-reset-requests"] == "1m0s"
    assert error.retry_after is not None
    clock.now += error.retry_after - 1
    assert admit(ledger) is None
    clock.now += 2
    assert admit(ledger) is not None


def test_a_caller_without_limits_is_not_counted() -> None:
    """Limits of other callers have no effect."""
    [ledger] = replicas(1, "keys: {other: {requests_per_minute: 5}}")
    assert ledger.admit(CALLER, calls_model=True, ingest=None) is None
    assert list(ledger.take_unpublished()) == []


def test_the_keys_of_a_tenant_share_its_quota() -> None:
    """A key within its own limit is refused if its tenant is over the quota. A key of another tenant is not."""
    [ledger] = replicas(1, "{defaults: {tenant: {requests_per_minute: 3}, key: {requests_per_minute: 2}}}")
    other_key = Caller(Principal("north", "bob"), "id2", "other")
    assert [admit(ledger) is not None for _ in range(3)] == [True, True, False]
    assert [admit(ledger, other_key) is not None for _ in range(2)] == [True, False]
    assert admit(ledger, Caller(Principal("south", "ann"), "id3", "loader")) is not None
    with pytest.raises(RateLimited, match="The tenant is over its quota of 3 requests per minute"):
        ledger.admit(other_key, calls_model=True, ingest=None)


def test_headers_have_the_tighter_limit() -> None:
    """The headers have the key's or the tenant's limit, whichever leaves less."""
    [ledger] = replicas(
        1, "{tenants: {north: {requests_per_minute: 3}}, keys: {loader: {requests_per_minute: 50}}}"
    )
    admitted = admit(ledger)
    assert admitted is not None
    assert admitted.headers["x-ratelimit-limit-requests"] == "3"
    assert admitted.headers["x-ratelimit-remaining-requests"] == "2"


def test_tokens_are_counted_when_they_are_known() -> None:
    """Running answers count with the mean of the last answers, so that concurrent ones do not exceed the limit."""
    [ledger] = replicas(1, "keys: {loader: {tokens_per_minute: 1000}}")
    first = admit(ledger)
    assert first is not None
    assert first.headers["x-ratelimit-remaining-tokens"] == str(1000 - 256)
    first.end(400, 0)
    second = admit(ledger)
    assert second is not None
    assert second.headers["x-ratelimit-remaining-tokens"] == "200"
    assert admit(ledger) is None
    second.end(20, 0)
    third = admit(ledger)
    assert third is not None
    third.end(2000, 0)
    error = refusal(ledger)
    assert error.details["x-ratelimit-remaining-tokens"] == "0"
    assert "tokens per minute" in error.message
    assert admit(ledger, calls_model=False) is not None


def test_an_answer_above_the_limit_is_admitted() -> None:
    """An answer above the limit is admitted if nothing was used, because otherwise it never could be."""
    [ledger] = replicas(1, "keys: {loader: {tokens_per_minute: 10}}")
    first = admit(ledger)
    assert first is not None
    assert admit(ledger) is None
    first.end(4, 0)
    assert admit(ledger) is not None


def test_an_ended_request_makes_room() -> None:
    """After a request has ended, another request is admitted."""
    [ledger] = replicas(1, "keys: {loader: {concurrent_requests: 2}}")
    first, second = admit(ledger), admit(ledger)
    assert first is not None
    assert second is not None
    assert refusal(ledger).retry_after == 1
    first.end(0, 0)
    assert admit(ledger) is not None
    assert admit(ledger) is None


def test_documents_count_by_their_bytes() -> None:
    """The Content-Length counts first, and the received bytes at the end. Questions do not count."""
    [ledger] = replicas(1, "keys: {loader: {ingest_bytes_per_day: 100}}")
    first = admit(ledger, calls_model=False, ingest=90)
    assert first is not None
    error = refusal(ledger, ingest=20)
    assert "bytes of documents per day" in error.message
    assert error.retry_after is not None
    assert error.retry_after > 3600
    first.end(0, 50)
    assert admit(ledger, calls_model=False, ingest=50) is not None
    assert admit(ledger, ingest=None) is not None


@given(
    st.integers(2, 4),
    st.integers(1, 60),
    st.lists(st.lists(st.integers(0, 70), min_size=4, max_size=4), max_size=12),
)
@hypothesis_settings(max_examples=40)
def test_replicas_keep_to_the_limit_together(count: int, limit: int, rounds: list[list[int]]) -> None:
    """With timely updates, the excess is at most one request per other replica, for any distribution."""
    all_replicas = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    admitted = 0
    for requests in rounds:
        for ledger, times in zip(all_replicas, requests, strict=False):
            admitted += sum(admit(ledger) is not None for _ in range(times))
        for ledger in all_replicas:
            publish(ledger, all_replicas)
    assert admitted <= limit + count - 1


@given(
    st.integers(2, 4), st.integers(1, 60), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70)), max_size=30)
)
@hypothesis_settings(max_examples=40)
def test_late_updates_cost_at_most_one_share(count: int, limit: int, steps: list[tuple[int, int]]) -> None:
    """A replica without updates admits at most its even share, for any duration."""
    all_replicas = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    admitted = 0
    for at, times in steps:
        ledger = all_replicas[at % count]
        admitted += sum(admit(ledger) is not None for _ in range(times))
        publish(ledger, all_replicas)
        silent = all_replicas[(at + 1) % count]
        admitted += sum(admit(silent) is not None for _ in range(times))
    assert admitted <= limit + (count - 1) * max(1, limit / count)


@given(st.integers(1, 4), st.integers(1, 60))
@hypothesis_settings(max_examples=40)
def test_one_replica_can_get_the_whole_limit(count: int, limit: int) -> None:
    """If the other replicas get no requests, one replica admits the whole limit."""
    all_replicas = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    admitted = 0
    for _ in range(limit * 2):
        admitted += admit(all_replicas[0]) is not None
        publish(all_replicas[0], all_replicas)
    assert admitted == limit


def test_without_updates_each_replica_keeps_its_share() -> None:
    """Without a connection, a replica uses its share of the limit among the last known replicas."""
    first, _, _ = replicas(3, "keys: {loader: {requests_per_minute: 30, concurrent_requests: 2}}")
    first.disconnected()
    ended = 0
    while (admitted := admit(first)) is not None:
        admitted.end(0, 0)
        first.prune()
        ended += 1
    assert ended == 10
    assert first.replicas == 3


def test_a_rejoined_replica_publishes_its_usage() -> None:
    """After an interruption, a replica publishes the requests that it admitted meanwhile."""
    first, second = all_replicas = replicas(2, "keys: {loader: {requests_per_minute: 10}}")
    publish(first, all_replicas)
    first.disconnected()
    for _ in range(5):
        assert admit(first) is not None
    assert admit(first) is None
    first.connected([second.replica])
    publish(first, all_replicas)
    left = admit(second)
    assert left is not None
    assert left.headers["x-ratelimit-remaining-requests"] == "4"


def test_a_lost_replica_releases_its_running_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica is lost after a time-out or its own notice.

    Its running requests are removed, and its usage still counts.
    """
    first, second = all_replicas = replicas(2, "keys: {loader: {requests_per_minute: 10, concurrent_requests: 2}}")
    assert admit(second) is not None
    publish(second, all_replicas)
    assert admit(first) is not None
    publish(first, all_replicas)
    assert admit(first) is None
    begin = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: begin + module.REPLICA_SECONDS + 1)
    first.prune()
    assert first.replicas == 1
    again = admit(first)
    assert again is not None
    assert again.headers["x-ratelimit-remaining-requests"] == "7"
    first.add_replica("third")
    assert first.replicas == 2
    first.remove_replica("third")
    assert first.replicas == 1


def test_expired_usage_is_removed() -> None:
    """The ledger stores nothing for a caller without current usage."""
    clock = ManualClock(BEGIN)
    [ledger] = replicas(1, "defaults: {user: {requests_per_minute: 5}}", clock)
    for number in range(50):
        admitted = admit(ledger, Caller(Principal("north", f"user-{number}")))
        assert admitted is not None
        admitted.end(0, 0)
    publish(ledger, [ledger])
    clock.now += 120
    ledger.prune()
    assert not any(ledger._tallies.values())


def test_the_number_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger keeps the usage of a bounded number of callers."""
    monkeypatch.setattr(module, "_MAX_HOLDERS", 10)
    [ledger] = replicas(1, "defaults: {user: {requests_per_minute: 5}}")
    for number in range(50):
        admit(ledger, Caller(Principal("north", f"user-{number}")))
    assert len(ledger._tallies["user"]) == 10
    assert len(list(ledger.take_unpublished())) == 10


@pytest.mark.parametrize(
    ("text", "caller"),
    [
        ("defaults: {tenant: {requests_per_minute: 50}, user: {requests_per_minute: 5}}", None),
        ("defaults: {user: {requests_per_minute: 5}, key: {requests_per_minute: 5}}", CALLER),
    ],
    ids=["tenant", "key"],
)
def test_many_users_do_not_reset_the_usage_of_a_tenant_or_key(
    monkeypatch: pytest.MonkeyPatch, text: str, caller: Caller | None
) -> None:
    """The ledger keeps the usage of a tenant and of a key while any number of users send requests."""
    monkeypatch.setattr(module, "_MAX_HOLDERS", 10)
    [ledger] = replicas(1, text)
    users = [Caller(Principal("north", f"user-{number}")) for number in range(60)]
    admitted = sum(admit(ledger, caller) is not None for _ in range(5) if caller)
    for user in users:
        admitted += admit(ledger, user) is not None and caller is None
    assert admitted == (5 if caller else 50)
    assert admit(ledger, caller or users[0]) is None


def test_new_users_replace_the_users_without_recent_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usage of a user who sends requests is kept, however many other users appear."""
    monkeypatch.setattr(module, "_MAX_HOLDERS", 10)
    [ledger] = replicas(1, "defaults: {user: {requests_per_minute: 5}}")
    active = Caller(Principal("north", "active"))
    admitted = 0
    for number in range(50):
        admitted += admit(ledger, active) is not None
        admit(ledger, Caller(Principal("north", f"user-{number}")))
    assert admitted == 5


def test_invalid_usage_is_refused() -> None:
    """Invalid usage raises an error."""
    [ledger] = replicas(1, "")
    for raw in (b"", b"[]", b'{"requests_per_minute":3}'):
        with pytest.raises(ValueError, match=r".+"):
            ledger.receive("other", "key.a.b", raw)


def test_the_shares_of_tenants_are_measured() -> None:
    """Each share has the labels tenant and quota."""
    [ledger] = replicas(1, "defaults: {tenant: {requests_per_minute: 4, tokens_per_minute: 512}}")
    admit(ledger)
    shares = {labels["causeway.quota"]: (share, labels["causeway.tenant"]) for share, labels in ledger.shares()}
    assert shares[Measure.REQUESTS.value] == (0.25, "north")
    assert shares[Measure.TOKENS.value] == (0.5, "north")

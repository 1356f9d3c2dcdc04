"""The counting of quotas, with replicas whose news go from hand to hand; over NATS: test_client_quota_share.py."""

import time
from collections.abc import Sequence

import pytest
from gateway.identity.caller import Caller
from gateway.quotas import ledger as module
from gateway.quotas.ledger import Admitted, Ledger
from gateway.quotas.limits import Measure, Quotas, parsed
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from servicekit.errors import RateLimited
from servicekit.principal import Principal

BEGIN = 1_700_000_000.0
CALLER = Caller(Principal("north", "ann"), "id", "loader")


class Clock:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


def quotas(text: str) -> Quotas:
    return parsed(text.encode(), "quotas.yaml")


def replicas(count: int, text: str, clock: Clock | None = None) -> list[Ledger]:
    """So many that know of each other."""
    limits = quotas(text)
    made = [Ledger(lambda: limits, clock or Clock()) for _ in range(count)]
    for each in made:
        each.joined([other.replica for other in made])
    return made


def tell(teller: Ledger, everybody: Sequence[Ledger]) -> None:
    """What one has to say comes to everybody, and so back to itself."""
    for holder, raw in list(teller.news()):
        for each in everybody:
            each.hear(teller.replica, holder, raw)


def admit(
    ledger: Ledger, caller: Caller = CALLER, *, model: bool = True, ingest: int | None = None
) -> Admitted | None:
    try:
        return ledger.admit(caller, model=model, ingest=ingest)
    except RateLimited:
        return None


def refusal(ledger: Ledger, *, ingest: int | None = None) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        ledger.admit(CALLER, model=True, ingest=ingest)
    return caught.value


def test_alone_the_whole_limit_is_there() -> None:
    """The last request within the limit is admitted; the error of the next one has the time until there is room."""
    clock = Clock()
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


def test_who_has_no_limits_is_not_counted() -> None:
    """Limits of other holders have no effect."""
    [ledger] = replicas(1, "keys: {other: {requests_per_minute: 5}}")
    assert ledger.admit(CALLER, model=True, ingest=None) is None
    assert list(ledger.news()) == []


def test_the_tenant_s_quota_is_all_its_keys_together() -> None:
    """A key within its own limit is refused, too; a key of another tenant is not."""
    [ledger] = replicas(1, "{defaults: {tenant: {requests_per_minute: 3}, key: {requests_per_minute: 2}}}")
    other_key = Caller(Principal("north", "bob"), "id2", "other")
    assert [admit(ledger) is not None for _ in range(3)] == [True, True, False]
    assert [admit(ledger, other_key) is not None for _ in range(2)] == [True, False]
    assert admit(ledger, Caller(Principal("south", "ann"), "id3", "loader")) is not None
    with pytest.raises(RateLimited, match="The tenant is over its quota of 3 requests per minute"):
        ledger.admit(other_key, model=True, ingest=None)


def test_headers_are_of_what_is_tighter() -> None:
    """The headers are those of the key's or the tenant's limit with less room."""
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
    assert admit(ledger, model=False) is not None


def test_an_answer_that_is_longer_than_the_limit_is_let_in() -> None:
    """It is admitted if nothing was used; otherwise it could never be."""
    [ledger] = replicas(1, "keys: {loader: {tokens_per_minute: 10}}")
    first = admit(ledger)
    assert first is not None
    assert admit(ledger) is None
    first.end(4, 0)
    assert admit(ledger) is not None


def test_requests_at_once() -> None:
    """A request that has ended makes room for another one."""
    [ledger] = replicas(1, "keys: {loader: {concurrent_requests: 2}}")
    first, second = admit(ledger), admit(ledger)
    assert first is not None
    assert second is not None
    assert refusal(ledger).retry_after == 1
    first.end(0, 0)
    assert admit(ledger) is not None
    assert admit(ledger) is None


def test_documents_count_by_their_bytes() -> None:
    """First by the announced length, then by the real one; questions are not affected."""
    [ledger] = replicas(1, "keys: {loader: {ingest_bytes_per_day: 100}}")
    first = admit(ledger, model=False, ingest=90)
    assert first is not None
    error = refusal(ledger, ingest=20)
    assert "bytes of documents per day" in error.message
    assert error.retry_after is not None
    assert error.retry_after > 3600
    first.end(0, 50)
    assert admit(ledger, model=False, ingest=50) is not None
    assert admit(ledger, ingest=None) is not None


@given(
    st.integers(2, 4),
    st.integers(1, 60),
    st.lists(st.lists(st.integers(0, 70), min_size=4, max_size=4), max_size=12),
)
@hypothesis_settings(max_examples=40)
def test_replicas_keep_to_the_limit_together(count: int, limit: int, rounds: list[list[int]]) -> None:
    """For any distribution of requests: with timely news the excess is at most one request per other replica."""
    everybody = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    let_in = 0
    for asked in rounds:
        for ledger, times in zip(everybody, asked, strict=False):
            let_in += sum(admit(ledger) is not None for _ in range(times))
        for ledger in everybody:
            tell(ledger, everybody)
    assert let_in <= limit + count - 1


@given(
    st.integers(2, 4), st.integers(1, 60), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70)), max_size=30)
)
@hypothesis_settings(max_examples=40)
def test_late_news_cost_a_share_at_most(count: int, limit: int, steps: list[tuple[int, int]]) -> None:
    """A replica without news for any time has admitted at most its even share."""
    everybody = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    let_in = 0
    for at, times in steps:
        ledger = everybody[at % count]
        let_in += sum(admit(ledger) is not None for _ in range(times))
        tell(ledger, everybody)
        silent = everybody[(at + 1) % count]
        let_in += sum(admit(silent) is not None for _ in range(times))
    assert let_in <= limit + (count - 1) * max(1, limit / count)


@given(st.integers(1, 4), st.integers(1, 60))
@hypothesis_settings(max_examples=40)
def test_one_replica_can_be_given_everything(count: int, limit: int) -> None:
    """If the other replicas get no requests, one replica admits the whole limit, after some time."""
    everybody = replicas(count, f"keys: {{loader: {{requests_per_minute: {limit}}}}}")
    let_in = 0
    for _ in range(limit * 2):
        let_in += admit(everybody[0]) is not None
        tell(everybody[0], everybody)
    assert let_in == limit


def test_without_news_each_keeps_to_its_part() -> None:
    """The part is that of the last known number of replicas, at least one request."""
    first, _, _ = replicas(3, "keys: {loader: {requests_per_minute: 30, concurrent_requests: 2}}")
    first.left()
    ended = 0
    while (admitted := admit(first)) is not None:
        admitted.end(0, 0)
        first.tidy()
        ended += 1
    assert ended == 10
    assert first.replicas == 3


def test_what_was_let_in_meanwhile_is_told_when_others_are_heard_again() -> None:
    """It also publishes again what the store may have lost."""
    first, second = everybody = replicas(2, "keys: {loader: {requests_per_minute: 10}}")
    tell(first, everybody)
    first.left()
    for _ in range(5):
        assert admit(first) is not None
    assert admit(first) is None
    first.joined([second.replica])
    tell(first, everybody)
    left = admit(second)
    assert left is not None
    assert left.headers["x-ratelimit-remaining-requests"] == "4"


def test_a_replica_that_is_gone_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its running requests are removed, its usage still counts. It is gone after a time-out, or when it says so."""
    first, second = everybody = replicas(2, "keys: {loader: {requests_per_minute: 10, concurrent_requests: 2}}")
    for _ in range(1):
        assert admit(second) is not None
    tell(second, everybody)
    assert admit(first) is not None
    tell(first, everybody)
    assert admit(first) is None
    begin = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: begin + module.REPLICA_SECONDS + 1)
    first.tidy()
    assert first.replicas == 1
    again = admit(first)
    assert again is not None
    assert again.headers["x-ratelimit-remaining-requests"] == "7"
    first.met("third")
    assert first.replicas == 2
    first.parted("third")
    assert first.replicas == 1


def test_what_is_over_is_forgotten() -> None:
    """A holder without current usage takes no memory."""
    clock = Clock()
    [ledger] = replicas(1, "defaults: {user: {requests_per_minute: 5}}", clock)
    for number in range(50):
        admitted = admit(ledger, Caller(Principal("north", f"user-{number}")))
        assert admitted is not None
        admitted.end(0, 0)
    tell(ledger, [ledger])
    clock.now += 120
    ledger.tidy()
    assert ledger._tallies == {}


def test_holders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of callers."""
    monkeypatch.setattr(module, "_MOST_HOLDERS", 10)
    [ledger] = replicas(1, "defaults: {user: {requests_per_minute: 5}}")
    for number in range(50):
        admit(ledger, Caller(Principal("north", f"user-{number}")))
    assert len(ledger._tallies) == 10
    assert len(list(ledger.news())) == 10


def test_news_that_are_none() -> None:
    """Invalid news raise an error."""
    [ledger] = replicas(1, "")
    for raw in (b"", b"[]", b'{"requests_per_minute":3}'):
        with pytest.raises(ValueError, match=r".+"):
            ledger.hear("other", "key.a.b", raw)


def test_tenants_shares_can_be_seen() -> None:
    """The labels are tenant and quota; tenants beyond a number are omitted."""
    [ledger] = replicas(1, "defaults: {tenant: {requests_per_minute: 4, tokens_per_minute: 512}}")
    admit(ledger)
    shares = {labels["causeway.quota"]: (share, labels["causeway.tenant"]) for share, labels in ledger.shares()}
    assert shares[Measure.REQUESTS.value] == (0.25, "north")
    assert shares[Measure.TOKENS.value] == (0.5, "north")

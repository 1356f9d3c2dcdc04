import asyncio
import json
from typing import Any

import pytest
import structlog
from causeway_testing.servers import eventually
from gateway.identity.provider_keys import ProviderKeys
from servicekit.errors import Unauthenticated, Unavailable

ALGORITHMS = ("RS256", "ES256")


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(issuer: Any, clock: Clock) -> ProviderKeys:
    return ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS, clock=clock)


async def test_keys_are_fetched_once(issuer: Any, keys: ProviderKeys) -> None:
    """Concurrent callers share one fetch; the provider's configuration has the address of the keys."""
    found = await asyncio.gather(*(keys.find("one") for _ in range(20)))
    assert len({id(key) for key in found}) == 1
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_a_setting_may_say_where_they_are(issuer: Any) -> None:
    """The provider's configuration is not fetched then."""
    keys = ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS, jwks_url=f"{issuer.url}/jwks")
    await keys.find("one")
    assert issuer.asked == ["/jwks"]


async def test_a_key_that_is_new_is_fetched_at_once(issuer: Any, keys: ProviderKeys, clock: Clock) -> None:
    """The first token that it signed is accepted."""
    await keys.find("one")
    issuer.add("two")
    clock.now += 6
    await keys.find("two")
    assert issuer.asked.count("/keys") == 2


async def test_invented_names_do_not_reach_the_provider(issuer: Any, keys: ProviderKeys, clock: Clock) -> None:
    """There is one fetch within a few seconds, for any number of unknown key ids."""
    await keys.find("one")
    clock.now += 6
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await keys.find(f"invented {number}")
        await keys.find("one")
    assert issuer.asked.count("/keys") == 2


async def test_old_keys_are_fetched_again_beside_the_requests(
    issuer: Any, keys: ProviderKeys, clock: Clock
) -> None:
    """A key that the provider does not list any more is removed, and the callback is called."""
    changes: list[str] = []
    keys.on_change = lambda: changes.append("changed")
    await keys.find("one")
    issuer.add("two")
    issuer.remove("one")
    clock.now += 599
    await keys.find("one")
    assert issuer.asked.count("/keys") == 1
    clock.now += 2
    await keys.find("one")  # nobody waits for the provider
    await eventually(lambda: changes == ["changed"])
    assert issuer.asked.count("/keys") == 2
    clock.now += 6
    with pytest.raises(Unauthenticated):
        await keys.find("one")
    await keys.find("two")


async def test_a_further_key_is_no_change(issuer: Any, keys: ProviderKeys, clock: Clock) -> None:
    """Tokens that were signed before stay valid."""
    changes: list[str] = []
    keys.on_change = lambda: changes.append("changed")
    await keys.find("one")
    issuer.add("two")
    clock.now += 6
    await keys.find("two")
    assert changes == []


async def test_a_provider_that_is_away_takes_nothing_with_it(issuer: Any, keys: ProviderKeys, clock: Clock) -> None:
    """The previous keys stay valid for any length of an outage; the log reports the outage."""
    await keys.find("one")
    issuer.status = 503
    with structlog.testing.capture_logs() as logs:
        for _ in range(10):
            clock.now += 3600
            await keys.find("one")
            await eventually(lambda: keys._loading is None)
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 10
    issuer.status = 200
    issuer.add("two")
    clock.now += 6
    await keys.find("two")


async def test_a_provider_that_was_never_there(issuer: Any, keys: ProviderKeys, clock: Clock) -> None:
    """It is a 503, because the token may be valid. Further requests do not fetch again immediately."""
    issuer.status = 500
    for _ in range(5):
        with pytest.raises(Unavailable):
            await keys.find("one")
    assert len(issuer.asked) == 1
    issuer.status = 200
    clock.now += 6
    await keys.find("one")


@pytest.mark.parametrize(
    "configuration",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        {"issuer": "https://other.example.com", "jwks_uri": "https://id.example.com/keys"},
        {"issuer": "https://id.example.com"},
        {"issuer": "https://id.example.com", "jwks_uri": "http://id.example.com/keys"},
        {"issuer": "https://id.example.com", "jwks_uri": "file:///etc/keys"},
    ],
)
async def test_a_configuration_that_is_none(issuer: Any, configuration: Any) -> None:
    """No key is taken from another issuer, or from an address without https."""
    raw = configuration if isinstance(configuration, bytes) else json.dumps(configuration).encode()
    asked = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return raw

    with pytest.raises(Unavailable):
        await ProviderKeys(issuer.url, fetch, ALGORITHMS).find("one")
    assert len(asked) == 1


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1, {"kty": "XX"}, {}]}'])
async def test_a_key_set_that_is_none_keeps_the_old_one(issuer: Any, clock: Clock, document: bytes) -> None:
    """It is handled like an outage of the provider."""
    answer: bytes = issuer.document("/keys")

    async def fetch(url: str) -> bytes:
        return answer

    keys = ProviderKeys(issuer.url, fetch, ALGORITHMS, jwks_url=f"{issuer.url}/keys", clock=clock)
    await keys.find("one")
    answer = document
    clock.now += 601
    await keys.find("one")
    await eventually(lambda: keys._loading is None)
    await keys.find("one")


async def test_keys_for_something_else_are_none(issuer: Any, clock: Clock) -> None:
    """Keys for encryption, for a forbidden algorithm, too short keys and shared keys are ignored."""
    issuer.add("encrypts", use="enc")
    issuer.add("short", "RS256", bits=1024)
    issuer.add("long", "RS256")
    shared = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared", "alg": "HS256"}
    document = json.loads(issuer.document("/keys"))

    async def fetch(url: str) -> bytes:
        return json.dumps({"keys": [*document["keys"], shared]}).encode()

    keys = ProviderKeys(issuer.url, fetch, ["RS256"], jwks_url="https://x", clock=clock)
    await keys.find("long")
    await keys.find(None)  # the only one that is left
    for name in ("one", "encrypts", "short", "shared"):
        with pytest.raises(Unauthenticated):
            await keys.find(name)


async def test_a_token_without_a_name_of_a_key(issuer: Any, keys: ProviderKeys) -> None:
    """It is verified with the only key; with several keys it is refused."""
    await keys.find(None)
    issuer.add("two")
    other = ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS)
    with pytest.raises(Unauthenticated):
        await other.find(None)


async def test_a_provider_that_never_comes_to_an_end_is_away() -> None:
    """Callers wait no longer for it than for one that does not answer."""

    async def fetch(_: str) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    keys = ProviderKeys("https://issuer.example", fetch, ALGORITHMS, patience=0.05)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(keys.find("one"), 60)


async def test_closing_ends_what_runs(issuer: Any) -> None:
    """A provider that does not answer does not delay the closing."""

    async def fetch(url: str) -> bytes:
        await asyncio.sleep(600)
        return b""

    keys = ProviderKeys(issuer.url, fetch, ALGORITHMS)
    asking = asyncio.ensure_future(keys.find("one"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await keys.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_the_end_comes_although_a_cancellation_is_lost(clock: Clock) -> None:
    """`asyncio.wait_for` loses cancellations before Python 3.12."""

    async def deaf(url: str) -> bytes:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)
        raise OSError(url)

    keys = ProviderKeys("https://issuer.example", deaf, ALGORITHMS, clock=clock)
    asking = asyncio.create_task(keys.find("one"))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        await keys.close()
    with pytest.raises(asyncio.CancelledError):
        await asking

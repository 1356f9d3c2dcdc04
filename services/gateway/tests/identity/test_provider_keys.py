import asyncio
import json
from typing import Any

import pytest
import structlog
from causeway_testing.clock import ManualClock
from causeway_testing.servers import eventually
from gateway.identity.provider_keys import ProviderKeys
from servicekit.errors import Unauthenticated, Unavailable

ALGORITHMS = ("RS256", "ES256")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def keys(issuer: Any, clock: ManualClock) -> ProviderKeys:
    return ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS, clock=clock)


async def test_keys_are_fetched_once(issuer: Any, keys: ProviderKeys) -> None:
    """Concurrent callers share one fetch. The address of the keys is in the provider's configuration."""
    found = await asyncio.gather(*(keys.find("one") for _ in range(20)))
    assert len({id(key) for key in found}) == 1
    assert issuer.requested_paths == ["/.well-known/openid-configuration", "/keys"]


async def test_a_setting_can_have_the_address_of_the_keys(issuer: Any) -> None:
    """With this setting, the provider's configuration is not fetched."""
    keys = ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS, jwks_url=f"{issuer.url}/jwks")
    await keys.find("one")
    assert issuer.requested_paths == ["/jwks"]


async def test_a_key_that_is_new_is_fetched_at_once(issuer: Any, keys: ProviderKeys, clock: ManualClock) -> None:
    """A new key is fetched when its first token arrives."""
    await keys.find("one")
    issuer.add("two")
    clock.now += 6
    await keys.find("two")
    assert issuer.requested_paths.count("/keys") == 2


async def test_unknown_key_ids_cause_few_fetches(issuer: Any, keys: ProviderKeys, clock: ManualClock) -> None:
    """Any number of unknown key ids cause one fetch within a few seconds."""
    await keys.find("one")
    clock.now += 6
    for number in range(100):
        with pytest.raises(Unauthenticated):
            await keys.find(f"invented {number}")
        await keys.find("one")
    assert issuer.requested_paths.count("/keys") == 2


async def test_keys_are_refreshed_in_the_background(issuer: Any, keys: ProviderKeys, clock: ManualClock) -> None:
    """A refresh removes a key that the provider no longer lists, and calls the callback."""
    changes: list[str] = []
    keys.on_change = lambda: changes.append("changed")
    await keys.find("one")
    issuer.add("two")
    issuer.remove("one")
    clock.now += 599
    await keys.find("one")
    assert issuer.requested_paths.count("/keys") == 1
    clock.now += 2
    await keys.find("one")  # does not wait for the provider
    await eventually(lambda: changes == ["changed"])
    assert issuer.requested_paths.count("/keys") == 2
    clock.now += 6
    with pytest.raises(Unauthenticated):
        await keys.find("one")
    await keys.find("two")


async def test_a_further_key_is_no_change(issuer: Any, keys: ProviderKeys, clock: ManualClock) -> None:
    """A further key does not call the callback, so that tokens of the other keys stay valid."""
    changes: list[str] = []
    keys.on_change = lambda: changes.append("changed")
    await keys.find("one")
    issuer.add("two")
    clock.now += 6
    await keys.find("two")
    assert changes == []


async def test_keys_survive_an_outage_of_the_provider(issuer: Any, keys: ProviderKeys, clock: ManualClock) -> None:
    """The known keys stay valid during an outage of any length, and the log reports the outage."""
    await keys.find("one")
    issuer.status = 503
    with structlog.testing.capture_logs() as logs:
        for _ in range(10):
            clock.now += 3600
            await keys.find("one")
            await eventually(lambda: keys._refreshing is None)
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 10
    issuer.status = 200
    issuer.add("two")
    clock.now += 6
    await keys.find("two")


async def test_a_provider_that_never_responded_causes_a_503(
    issuer: Any, keys: ProviderKeys, clock: ManualClock
) -> None:
    """The answer is a 503, because the token may be valid. Further requests do not fetch again immediately."""
    issuer.status = 500
    for _ in range(5):
        with pytest.raises(Unavailable):
            await keys.find("one")
    assert len(issuer.requested_paths) == 1
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
async def test_an_invalid_configuration_is_refused(issuer: Any, configuration: Any) -> None:
    """A configuration of another issuer, or with keys at an address without https, is not used."""
    raw = configuration if isinstance(configuration, bytes) else json.dumps(configuration).encode()
    fetched = []

    async def fetch(url: str) -> bytes:
        fetched.append(url)
        return raw

    with pytest.raises(Unavailable):
        await ProviderKeys(issuer.url, fetch, ALGORITHMS).find("one")
    assert len(fetched) == 1


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1, {"kty": "XX"}, {}]}'])
async def test_an_invalid_key_set_keeps_the_old_one(issuer: Any, clock: ManualClock, document: bytes) -> None:
    """An invalid key set counts as an outage of the provider."""
    answer: bytes = issuer.document("/keys")

    async def fetch(url: str) -> bytes:
        return answer

    keys = ProviderKeys(issuer.url, fetch, ALGORITHMS, jwks_url=f"{issuer.url}/keys", clock=clock)
    await keys.find("one")
    answer = document
    clock.now += 601
    await keys.find("one")
    await eventually(lambda: keys._refreshing is None)
    await keys.find("one")


async def test_unsuitable_keys_are_ignored(issuer: Any, clock: ManualClock) -> None:
    """Keys for encryption, keys of other algorithms, short keys and shared keys are ignored."""
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


async def test_a_token_without_a_key_id(issuer: Any, keys: ProviderKeys) -> None:
    """A token without a key id is verified with the only key. With several keys, it is refused."""
    await keys.find(None)
    issuer.add("two")
    other = ProviderKeys(issuer.url, issuer.fetch, ALGORITHMS)
    with pytest.raises(Unauthenticated):
        await other.find(None)


async def test_a_fetch_has_a_time_limit() -> None:
    """A fetch that does not end counts as an outage."""

    async def fetch(_: str) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    keys = ProviderKeys("https://issuer.example", fetch, ALGORITHMS, timeout=0.05)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(keys.find("one"), 60)


async def test_closing_cancels_a_fetch(issuer: Any) -> None:
    """A provider that does not answer does not delay the closing."""

    async def fetch(url: str) -> bytes:
        await asyncio.sleep(600)
        return b""

    keys = ProviderKeys(issuer.url, fetch, ALGORITHMS)
    finding = asyncio.ensure_future(keys.find("one"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await keys.close()
    with pytest.raises(asyncio.CancelledError):
        await finding


async def test_closing_succeeds_if_a_cancellation_is_lost(clock: ManualClock) -> None:
    """The closing ends even if `asyncio.wait_for` loses a cancellation, as before Python 3.12."""

    async def ignores_cancellation(url: str) -> bytes:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)
        raise OSError(url)

    keys = ProviderKeys("https://issuer.example", ignores_cancellation, ALGORITHMS, clock=clock)
    finding = asyncio.create_task(keys.find("one"))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        await keys.close()
    with pytest.raises(asyncio.CancelledError):
        await finding

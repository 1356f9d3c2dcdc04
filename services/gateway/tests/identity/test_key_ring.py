import dataclasses

import pytest
from gateway.identity.caller import with_own_oids
from gateway.identity.key_ring import KeyRing
from servicekit import api_keys
from servicekit.errors import Unauthenticated, Unavailable

KEY, RECORD = api_keys.create("ann", "north", roles=("ask",), profiles=("help",))


def test_a_key_identifies_the_caller() -> None:
    """The caller has the key's id and name, which front ends and the log use."""
    ring = KeyRing()
    ring.replace([RECORD])
    caller = ring.caller(KEY)
    assert caller.principal == with_own_oids(RECORD.principal())
    assert (caller.key_id, caller.key_name, caller.profiles) == (RECORD.id, "ann", frozenset({"help"}))


def test_before_the_keys_are_loaded_a_caller_gets_a_503() -> None:
    """Before the keys are loaded, the response is a 503, because the same request may succeed a moment later."""
    with pytest.raises(Unavailable) as caught:
        KeyRing().caller(KEY)
    assert caught.value.retry_after == 2


@pytest.mark.parametrize(
    "key",
    [KEY[:-1] + "-", KEY + "x", "", "sk-other", KEY.replace(RECORD.id, "0" * 16)],
    ids=["secret", "longer", "empty", "form", "id"],  # the key is another one in each process
)
def test_an_unknown_key_is_refused(key: str) -> None:
    """A wrong secret, a wrong id and a wrong format get the same error."""
    ring = KeyRing()
    ring.replace([RECORD])
    with pytest.raises(Unauthenticated, match="The API key does not exist") as caught:
        ring.caller(key)
    assert caught.value.details == {"challenge": "invalid_token"}


def test_a_key_that_is_revoked_is_refused_at_once() -> None:
    """A revoked key is refused at once, after its removal and after a reload of the ring."""
    ring = KeyRing()
    ring.replace([])
    ring.put(RECORD)
    ring.caller(KEY)
    ring.remove(RECORD.id)
    ring.remove(RECORD.id)
    with pytest.raises(Unauthenticated):
        ring.caller(KEY)
    ring.put(RECORD)
    ring.replace([])
    with pytest.raises(Unauthenticated):
        ring.caller(KEY)


def test_an_expired_key_is_refused() -> None:
    """An expired key is refused without a change of the ring."""
    now = 100.0
    ring = KeyRing(lambda: now)
    ring.replace([dataclasses.replace(RECORD, expires_at=200.0)])
    ring.caller(KEY)
    now = 200.0
    with pytest.raises(Unauthenticated, match="expired"):
        ring.caller(KEY)

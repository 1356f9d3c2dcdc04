import base64

import pytest
from causeway_testing.clock import ManualClock
from gateway.identity.link_signing import LinkedDocument, LinkKeys
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import PermissionDenied, Unavailable

KEY, OLD = b"k" * 32, b"o" * 32
NOW = 1_800_000_000.0


def linked(**more: object) -> LinkedDocument:
    fields: dict[str, object] = {
        "profile": "help",
        "tenant": "north",
        "index": "docs",
        "document_id": "d",
        "generation": 7,
        "user": "ann",
        "issuer": "https://id.example.com",
        "oids": ("ann",),
        "groups": ("staff",),
        "is_admin": False,
        "api_key": "",
        "expires_at": int(NOW) + 60,
    }
    return LinkedDocument(**(fields | more))  # type: ignore[arg-type]  # the values have the types of the fields


def test_a_signature_restores_its_claims() -> None:
    """The signature restores all fields and the principal, and its characters need no encoding in a URL."""
    ring = LinkKeys.of(KEY, now=ManualClock(NOW))
    signature = ring.sign(linked())
    assert signature is not None
    assert signature.replace(".", "").replace("_", "").replace("-", "").isalnum()
    opened_document = ring.verify(signature)
    assert opened_document == linked()
    principal = opened_document.principal
    assert (principal.tenant, principal.user, principal.issuer) == ("north", "ann", "https://id.example.com")
    assert (principal.oids, principal.groups, principal.roles) == (("ann",), ("staff",), ("ask",))
    assert linked(is_admin=True).principal.sees_everything


@given(st.integers(0, 400), st.characters(codec="ascii"))
def test_no_character_can_be_changed(at: int, character: str) -> None:
    """A signature with any changed character is refused."""
    ring = LinkKeys.of(KEY, now=ManualClock(NOW))
    signature = ring.sign(linked()) or ""
    at %= len(signature)
    changed = signature[:at] + character + signature[at + 1 :]
    if changed != signature:
        with pytest.raises((PermissionDenied, Unavailable)):
            ring.verify(changed)


WRONG = [
    "",
    "cwl1.",
    "cwl1.1.2.3",
    "x" * 5000,
    "cwl2.1.a.b",
    "cwl1.99999999999999999.a.b",
    "cwl1.é.a.b",
    "....",
    "cwl1.²..x",
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_an_invalid_signature_is_refused(wrong: str) -> None:
    """An invalid signature is refused with the usual message, and never causes an internal error."""
    with pytest.raises(PermissionDenied, match="Ask again to get a new one"):
        LinkKeys.of(KEY, now=ManualClock(NOW)).verify(wrong)


def test_the_claims_cannot_be_swapped() -> None:
    """The claims of one link with the code of another are refused, and so is a key of another deployment."""
    ring = LinkKeys.of(KEY, now=ManualClock(NOW))
    mine, other = (ring.sign(linked(tenant=tenant)) or "" for tenant in ("north", "south"))
    with pytest.raises(PermissionDenied):
        ring.verify(f"{other.rpartition('.')[0]}.{mine.rpartition('.')[2]}")
    with pytest.raises(PermissionDenied):
        LinkKeys.of(OLD, now=ManualClock(NOW)).verify(mine)
    assert b"south" in base64.urlsafe_b64decode(other.split(".")[2] + "==")


def test_a_link_expires() -> None:
    """A link expires at its time, to the second."""
    clock = ManualClock(NOW)
    ring = LinkKeys.of(KEY, now=clock)
    signature = ring.sign(linked()) or ""
    clock.now += 59
    ring.verify(signature)
    clock.now += 1
    with pytest.raises(PermissionDenied):
        ring.verify(signature)


def test_keys_rotate() -> None:
    """The key of the current period signs, the previous one still verifies, and older ones are removed."""
    clock = ManualClock(NOW)
    ring = LinkKeys.of(KEY, OLD, now=clock)
    assert ring.ids == {ring.period, ring.period - 1}
    old = LinkKeys(clock)
    old.put(ring.period - 1, OLD)
    before = old.sign(linked()) or ""
    assert ring.verify(before) == linked()
    new = ring.sign(linked()) or ""
    assert new.split(".")[1] == str(ring.period)
    with pytest.raises(Unavailable):
        old.verify(new)
    ring.put(ring.period + 1, b"n" * 32)
    assert (ring.sign(linked()) or "").split(".")[1] == str(ring.period), "the next key waits for its period"
    clock.now += LinkKeys.PERIOD_SECONDS
    assert ring.ids == {ring.period, ring.period - 1}
    with pytest.raises(PermissionDenied):
        ring.verify(before)


def test_nothing_is_signed_without_a_key() -> None:
    """Without a key, or with claims too long for a URL, there is no signature."""
    assert LinkKeys(ManualClock(NOW)).sign(linked()) is None
    assert LinkKeys.of(KEY, now=ManualClock(NOW)).sign(linked(groups=tuple(map(str, range(2000))))) is None

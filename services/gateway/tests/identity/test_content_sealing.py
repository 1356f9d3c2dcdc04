"""Encrypted contents that clients store. Only the platform can decrypt them, for one user of one front end."""

from dataclasses import replace

import pytest
from gateway.identity.content_sealing import ContentKeys
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable
from servicekit.principal import Principal

ANN = Principal("acme", "ann", issuer="https://id.example")
KEY = b"k" * 32


@given(st.text())
def test_a_sealed_content_can_be_unsealed(text: str) -> None:
    """Any ring with the key decrypts a content. Two encryptions of a text have different results."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", text)
    assert sealed != keys.seal(ANN, "web", "reasoning", text)
    assert (
        ContentKeys.of(b"n" * 32, KEY, now=lambda: keys._now() + keys.PERIOD_SECONDS).unseal(
            ANN, "web", "reasoning", sealed
        )
        == text
    )


@pytest.mark.parametrize(
    ("owner", "profile", "kind"),
    [
        (replace(ANN, tenant="other"), "web", "reasoning"),
        (replace(ANN, user="bob"), "web", "reasoning"),
        (replace(ANN, issuer=""), "web", "reasoning"),
        (ANN, "", "reasoning"),
        (ANN, "web", "compaction"),
    ],
    ids=("tenant", "user", "issuer", "profile", "kind"),
)
def test_a_content_belongs_to_one_user_and_one_kind(owner: Principal, profile: str, kind: str) -> None:
    """A content cannot be decrypted for another user, front end or kind."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", "So.")
    assert keys.unseal(ANN, "web", "reasoning", sealed) == "So."
    assert keys.unseal(owner, profile, kind, sealed) is None


@given(st.integers(min_value=0), st.characters())
def test_a_changed_content_cannot_be_unsealed(at: int, character: str) -> None:
    """A change of any character is detected."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", "At nine.")
    at %= len(sealed)
    changed = sealed[:at] + character + sealed[at + 1 :]
    assert changed == sealed or keys.unseal(ANN, "web", "reasoning", changed) is None


def test_keys_expire() -> None:
    """A key decrypts contents for a number of periods. Without a key, nothing is encrypted or decrypted."""
    now = 100 * ContentKeys.PERIOD_SECONDS + 1.0
    sealed = ContentKeys.of(KEY, now=lambda: now).seal(ANN, "web", "reasoning", "So.")
    for periods, text in ((ContentKeys.EARLIER_PERIODS, "So."), (ContentKeys.EARLIER_PERIODS + 1, None)):
        later = ContentKeys(lambda periods=periods: now + periods * ContentKeys.PERIOD_SECONDS)  # type: ignore[misc]
        later.put(later.period, b"n" * 32)
        later.put(100, KEY)
        assert later.unseal(ANN, "web", "reasoning", sealed) == text
    empty = ContentKeys()
    assert empty.seal(ANN, "web", "reasoning", "So.") == ""
    with pytest.raises(Unavailable):
        empty.unseal(ANN, "web", "reasoning", sealed)

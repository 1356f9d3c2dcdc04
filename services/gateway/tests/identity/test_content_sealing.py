"""Contents that clients keep: read by the platform alone, for one user in one front end."""

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
def test_what_is_sealed_is_opened(text: str) -> None:
    """By each ring that has the key; no content is twice the same."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", text)
    assert sealed != keys.seal(ANN, "web", "reasoning", text)
    assert (
        ContentKeys.of(b"n" * 32, KEY, now=lambda: keys._now() + keys.SECONDS).opened(
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
def test_it_belongs_to_one_user_and_one_use(owner: Principal, profile: str, kind: str) -> None:
    """Everything else cannot open it."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", "So.")
    assert keys.opened(ANN, "web", "reasoning", sealed) == "So."
    assert keys.opened(owner, profile, kind, sealed) is None


@given(st.integers(min_value=0), st.characters())
def test_a_change_is_noticed(at: int, character: str) -> None:
    """Of any character."""
    keys = ContentKeys.of(KEY)
    sealed = keys.seal(ANN, "web", "reasoning", "At nine.")
    at %= len(sealed)
    changed = sealed[:at] + character + sealed[at + 1 :]
    assert changed == sealed or keys.opened(ANN, "web", "reasoning", changed) is None


def test_keys_end() -> None:
    """A content can be read for a year, and none while no key is known."""
    now = 100 * ContentKeys.SECONDS + 1.0
    sealed = ContentKeys.of(KEY, now=lambda: now).seal(ANN, "web", "reasoning", "So.")
    for periods, text in ((ContentKeys.KEPT, "So."), (ContentKeys.KEPT + 1, None)):
        later = ContentKeys(lambda periods=periods: now + periods * ContentKeys.SECONDS)  # type: ignore[misc]
        later.put(later.period, b"n" * 32)
        later.put(100, KEY)
        assert later.opened(ANN, "web", "reasoning", sealed) == text
    empty = ContentKeys()
    assert empty.seal(ANN, "web", "reasoning", "So.") == ""
    with pytest.raises(Unavailable):
        empty.opened(ANN, "web", "reasoning", sealed)

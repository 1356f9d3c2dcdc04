import pytest
from servicekit.characters import has_controls, has_surrogates


@pytest.mark.parametrize("text", ["a\nb", "a\x7f", "a\udcff", "a\u2028b", "a\u2029"])
def test_controls(text: str) -> None:
    """Control characters, surrogates, and separators of lines and paragraphs are found."""
    assert has_controls(text)


@pytest.mark.parametrize("text", ["", "two words", "\u7530\u3000\u592a", "a\u00a0b", "\u200d\U0001f600"])
def test_text(text: str) -> None:
    """Spaces of all scripts, joiners and characters outside the basic plane are text."""
    assert not has_controls(text)
    assert not has_surrogates(text)


def test_surrogates() -> None:
    """Only surrogates are found, and not other control characters."""
    assert has_surrogates("a\ud800")
    assert not has_surrogates("a\n\U0001f600")

"""detection.detectors.patterns.partial: the pattern that also finds a match that has only begun."""

import pytest
from detection.detectors.patterns.engine import Regex
from detection.detectors.patterns.partial import SENTINEL, partial


def _match(pattern: str, text: str) -> tuple[str, bool]:
    """Return the first match in a text that may continue, and whether the match reaches the end."""
    data = text.encode() + SENTINEL
    start, end = Regex(partial(pattern), memory=1 << 22).search(data, 0)
    return data[start:end].removesuffix(SENTINEL).decode(), end == len(data)


@pytest.mark.parametrize(
    ("pattern", "text", "matched", "open_"),
    [
        ("abc", "xab", "ab", True),
        ("abc", "xabc", "abc", False),  # nothing can change it
        ("abc", "xabd", "", True),  # a match may begin at the end
        ("ab|a", "a", "a", True),  # the longer one is preferred and may still come
        ("a|ab", "a", "a", False),  # the shorter one is preferred for any further text
        ("a.*?b", "axxb", "axxb", False),
        ("a.*b", "axxb", "axxb", True),
        (r"a{2,3}", "aa", "aa", True),
        (r"a{2,3}", "aaa", "aaa", False),
        (r"a{2}", "aa", "aa", False),
        (r"a\b", "a", "a", True),  # the next character decides
        (r"a\b", "a ", "a", False),
        (r"a\b", "ab", "", True),
        (r"a\B", "ab", "a", False),
        ("a$", "a", "a", True),
        (r"a\z", "ab", "", True),
        ("(?m)a$", "a\nb", "a", False),
        ("(?m)\n^b", "x\n", "\n", True),
        ("(?m)\n^b", "x", "", True),
        (r"\Qa.b\Ec", "xa.b", "a.b", True),
        (r"\Qa.b", "xa.", "a.", True),
        (r"[]a]b", "]", "]", True),
        (r"[^]a]b", "x", "x", True),
        (r"[[:alpha:]]1", "é", "", True),
        (r"[[:^alpha:]]1", "é", "é", True),
        (r"[\]x]y", "]", "]", True),
        (r"\pL1", "é", "é", True),
        (r"\p{Greek}1", "λ", "λ", True),
        (r"\x{1F511}k", "🔑", "🔑", True),
        (r"\x41b", "A", "A", True),
        (r"\101b", "A", "A", True),
        (r"a{,2}b", "a{", "a{", True),  # RE2 reads this as text, not as a count
        (r"a{01}b", "a{0", "a{0", True),
        (r"x{y", "x{", "x{", True),
        ("(?i:AB)c", "ab", "ab", True),
        ("(?P<n>ab)c", "ab", "ab", True),
        ("(?<n>ab)c", "ab", "ab", True),
        ("(?s)a.b", "a\n", "a\n", True),
        ("(?U)a+b", "aa", "aa", True),
        (r"\ab", "\a", "\a", True),
        ("é+🔑", "éé", "éé", True),
    ],
)
def test_a_match_that_further_text_can_change_reaches_the_end(
    pattern: str, text: str, matched: str, open_: bool
) -> None:
    """A match reaches the end exactly if further text can change it. Otherwise it is the pattern's own match."""
    assert _match(pattern, text) == (matched, open_)


def test_a_pattern_of_single_bytes_is_refused() -> None:
    """A pattern of single bytes is refused, because it could split characters."""
    with pytest.raises(ValueError, match="split a character"):
        partial(r"a\C")

"""detection.detectors.invisible_text: characters that hide text, and characters that text needs."""

import json

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.invisible_text import invisible_text
from detection.detectors.patterns.matching import Limits

_DETECTOR = quick(invisible_text(Limits()))


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",
        "a\u200db"[1],
        "\U000e0041\U000e0042",
        "\u202e",
        "\ue000",
        "\U000e0100\U000e0101",
        "\u2062\u2063",
        "\u3164",
    ],
)
def test_hidden_characters_are_found(hidden: str) -> None:
    """Spaces without width, tags, turned directions, private characters and selectors are found as one span."""
    (found,) = _DETECTOR.detect(f"a{hidden}b")
    assert (found.start, found.end, found.text) == (1, 1 + len(hidden), hidden)
    assert (found.type, found.name) == ("invisible_text", "invisible_characters")


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d💻 👨‍👩‍👧",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "क्\u200dष",
        "Donau\u00addampf",
        "עברית\u200f!",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\ufeffA text",
        "Line\nline\ttab\r\n",
    ],
)
def test_needed_characters_are_not_found(text: str) -> None:
    """Emoji, joining scripts, hyphenation, directions, flags and a byte order mark are not findings."""
    assert _DETECTOR.detect(text) == []


def test_a_redaction_removes_invisible_text() -> None:
    """Redaction removes invisible text. A replacement in the parameters takes its place."""
    kind = invisible_text(Limits())
    assert kind.make(b"").replacement == ""
    assert kind.make(json.dumps({"replacement": "?"}).encode()).replacement == "?"

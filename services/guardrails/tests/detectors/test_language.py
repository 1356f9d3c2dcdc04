"""guardrails.detectors.language: texts in languages that are not allowed."""

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.params import BadParam
from guardrails.detectors.language import language

_KIND = language()
_TEXTS = {
    "en": "The bearing will be renewed at the beginning of the next year, when the plant stands still.",
    "de": "Das Lager wird zu Beginn des nächsten Jahres erneuert, wenn die Anlage stillsteht.",
    "fr": "Le roulement sera remplacé au début de l'année prochaine, quand l'usine sera arrêtée.",
    "ja": "この軸受は来年の初め、工場が止まっているときに交換される予定です。",
}


@pytest.mark.parametrize("spoken", _TEXTS)
def test_only_a_language_that_is_not_allowed_is_a_finding(spoken: str) -> None:
    """An allowed language is not a finding. Another language is a finding without a span, named by its code."""
    assert quick(_KIND, languages=[spoken]).detect(_TEXTS[spoken]) == []
    other = "it" if spoken != "it" else "en"
    (found,) = quick(_KIND, languages=[other]).detect(_TEXTS[spoken])
    assert (found.type, found.name, found.start) == ("language", spoken, None)
    assert found.score > 0.6


def test_a_short_text_has_no_language() -> None:
    """A text of a few letters has no language. A parameter changes the limit."""
    assert quick(_KIND, languages=["fr"]).detect("OK, thanks!") == []
    assert quick(_KIND, languages=["fr"], shortest=0).detect("the house is here") != []


def test_an_unknown_language_is_refused() -> None:
    """A language code that the detector cannot recognise is refused with its path."""
    with pytest.raises(BadParam) as raised:
        quick(_KIND, languages=["en", "xx"])
    assert raised.value.path == "languages[1]"

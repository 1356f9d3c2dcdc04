"""detectors.groundedness.comparison: the differences between a statement and the passages."""

import pytest
from guardrails.detectors.groundedness.comparison import Place, Sources
from guardrails.detectors.groundedness.words import has_opposite

_PASSAGES = (
    ("Anna Meyer leads procurement.", "Tom Berg leads sales.", "He joined in May 2015."),
    (
        "Visitors must not touch the press.",
        "The crane is older than the press.",
        "It is unpaid work, and it lasts 4 days.",
    ),
)
_SOURCES = Sources(
    [
        (text, Place(passage, 100 * at, 100 * at + len(text)))
        for passage, texts in enumerate(_PASSAGES)
        for at, text in enumerate(texts)
    ]
)


@pytest.mark.parametrize(
    ("text", "name", "value", "start"),
    [
        ("Tom Berg leads procurement.", "name", "Tom", 0),
        ("Tom Berg joined in June 2015.", "date", "June", None),
        ("Visitors may touch the press.", "negation", "not", 0),
        ("The crane is newer than the press.", "opposite", "newer", 100),
        ("The press is older than the crane.", "opposite", "than", 100),
        ("It lasts four weeks.", "unit", "four week", 200),
        ("It lasts 5 days.", "number", "5", None),
    ],
)
def test_the_first_difference_is_reported(text: str, name: str, value: str, start: int | None) -> None:
    """The first difference is reported with the words of the sentence and with the passage's sentence."""
    first = _SOURCES.differences(text)[0]
    assert (first.name, first.value, first.place and first.place.start) == (name, value, start)


@pytest.mark.parametrize(
    "text",
    [
        "Procurement is led by Anna Meyer and sales are led by Tom Berg.",
        "Tom Berg joined in May 2015.",
        "The press must never be touched by visitors.",
        "The press is newer than the crane.",
        "The unpaid work lasts four days.",
        "Nothing of this was ever asked.",
    ],
)
def test_equal_statements_have_no_differences(text: str) -> None:
    """A different order, a different form, and opposites that cancel each other out are no difference."""
    assert _SOURCES.differences(text) == []


def test_the_work_on_one_sentence_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a very long sentence, all facts are looked up, but only the first facts and clauses are compared by
    position.
    """
    compared: list[object] = []

    def similarity(_sources: Sources, *clauses: object) -> float:
        compared.append(clauses)
        return 0.0

    monkeypatch.setattr(Sources, "_similarity", similarity)
    sources = Sources([("The tank holds 1 litre.", Place(0, 0, 23))])
    assert len(sources.differences(", ".join(f"tank {number}" for number in range(2, 1000)))) == 998
    assert sources.differences(", ".join(["tank 1"] * 1000)) == []
    assert 0 < len(compared) < 200


@pytest.mark.parametrize(
    ("word", "others", "expected"),
    [
        ("open", {"the", "closed"}, True),
        ("paid", {"unpaid"}, True),
        ("unpaid", {"paid"}, True),
        ("in", {"tin"}, False),
        ("open", {"open"}, False),
    ],
)
def test_opposites_are_recognised(word: str, others: set[str], expected: bool) -> None:
    """Listed pairs are opposites, and so are a word and the same word with a negating prefix."""
    assert has_opposite(word, others) is expected

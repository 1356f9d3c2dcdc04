"""Extractive answers, which consist of sentences of the sources."""

import pytest
from generator.domain import Source
from generator.extractive.answer import NO_SOURCES, NOT_FOUND, answer

FREIGHT = Source("freight.md#page=1", "A pallet may weigh up to 900 kg. Parcels are limited to 30 kg each.", 0.9)
CARDS = Source(
    "cards.pdf#page=2", "Residents can have an Islander Card. It takes 40 % off fares. Dogs travel free.", 0.8
)


def test_the_best_sentence_is_given_with_its_citation() -> None:
    """The answer is the best sentence with the name of its source in brackets."""
    assert answer("How heavy may a pallet be?", [CARDS, FREIGHT]) == (
        "A pallet may weigh up to 900 kg. [freight.md#page=1]"
    )


def test_a_sentence_with_a_pronoun_is_quoted_with_its_neighbour() -> None:
    """A sentence with a pronoun is quoted together with its neighbour."""
    expected = "Residents can have an Islander Card. It takes 40 % off fares. [cards.pdf#page=2]"
    assert answer("How much does the Islander Card take off?", [CARDS]) == expected
    assert answer("Who are the residents that can have an Islander Card?", [CARDS]) == expected


def test_a_sentence_is_quoted_once() -> None:
    """A sentence of two sources is quoted once. An answer has at most three passages."""
    copy = Source("copy.md", FREIGHT.text, 0.1)
    assert answer("How heavy may a pallet be?", [copy, FREIGHT]).count("pallet") == 1
    many = Source("many.md", " ".join(f"Pier {name} is open to boats." for name in ("A1", "B2", "C3", "D4", "E5")))
    assert answer("Which pier is open to boats?", [many]).count("[many.md]") <= 3


ROWS = (
    "Item: Book; Loan: a week; Fine: 20p\nItem: Audio; Loan: 3 weeks; Fine: 30p\nItem: Saw; Loan: a day; Fine: £2"
)
TABLE = (
    "| Item | Loan | Fine |\n|--|--|--|\n| Book | a week | 20p |\n| Audio | 3 weeks | 30p |\n| Saw | a day | £2 |"
)


@pytest.mark.parametrize(
    ("text", "row"),
    [(ROWS, "Item: Audio; Loan: 3 weeks; Fine: 30p"), (TABLE, "Audio (Loan: 3 weeks, Fine: 30p)")],
    ids=["ingest", "markdown"],
)
def test_the_matching_row_of_a_table_is_quoted(text: str, row: str) -> None:
    """The answer quotes the matching row of a table with its header, or all rows if they match equally."""
    source = Source("items.csv", text, 1.0)
    assert answer("What is the fine for audio?", [source]) == f"{row} [items.csv]"
    assert answer("What is the loan and the fine of each item?", [source]).count("[items.csv]") == 3


def test_a_source_with_few_common_words_does_not_answer() -> None:
    """A source that shares only one word of several does not answer the question."""
    assert (
        answer("What is the capital of France?", [Source("a", "The capital of the fund is 3 million pounds.")])
        == NOT_FOUND
    )
    assert answer("Who wrote the pallet?", [FREIGHT]) == NOT_FOUND
    assert answer("What is it?", [FREIGHT]) == NOT_FOUND
    assert answer("", [FREIGHT]) == NOT_FOUND


def test_without_sources_the_answer_says_that_it_needs_them() -> None:
    """Without sources, or with empty ones, the answer says that it needs sources."""
    assert answer("How heavy may a pallet be?", []) == NO_SOURCES
    assert answer("How heavy may a pallet be?", [Source("a", " \n ")]) == NO_SOURCES


def test_the_same_question_has_the_same_answer() -> None:
    """Equal questions get equal answers."""
    answers = {answer("What takes how much off fares, and what travels free?", [FREIGHT, CARDS]) for _ in range(5)}
    assert len(answers) == 1

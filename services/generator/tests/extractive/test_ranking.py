"""The ranking of passages for a question."""

import pytest
from generator.domain import Source
from generator.extractive.ranking import rank
from generator.extractive.terms import subject


def best(question: str, *texts: str) -> str:
    sources = [Source(f"s{number}", text, 1.0 - number / 10) for number, text in enumerate(texts)]
    return rank(question, sources)[0].passage.text


def test_the_passage_with_more_of_the_question_is_better() -> None:
    """Rare words of the question count more than frequent ones."""
    text = "The boat carries cars. The boat carries sheep. The boat carries lorries. Sheep travel on the open deck."
    assert best("Where do sheep travel on the boat?", text) == "Sheep travel on the open deck."


def test_a_heading_counts_for_its_sentences() -> None:
    """The words of a heading count for the sentences below it."""
    text = "## Dogs\n\nThe fare is £3 each way.\n\n## Bicycles\n\nThe fare is £5 each way."
    assert best("What is the fare for bicycles?", text) == "The fare is £5 each way."


def test_the_previous_sentence_counts_for_a_sentence_with_a_pronoun() -> None:
    """The words of the previous sentence count for a sentence with a pronoun."""
    text = "Residents can have an Islander Card. It takes 40 % off all fares. Parking takes ten minutes."
    assert best("What discount does the Islander Card give?", text) == "It takes 40 % off all fares."


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("How many cars fit on Petrel?", "Petrel has room for 62 cars.", "Cars on Petrel are parked in gear."),
        ("When does Petrel sail?", "Petrel will sail at 06:15.", "Petrel will sail with cars."),
        ("What does a cabin cost?", "A cabin is £14.", "A cabin has 2 beds."),
        (
            "Who commands Petrel?",
            "On Petrel, Captain Runa Castell commands.",
            "On Petrel the master commands the crew.",
        ),
    ],
)
def test_a_passage_of_the_requested_kind_is_better(question: str, answer: str, other: str) -> None:
    """For questions with "how many", "when", "what cost" and "who", passages with numbers, times, sums and names
    win.
    """
    assert best(question, f"{other} {answer}") == answer
    assert best(question, f"{answer} {other}") == answer


def test_a_number_of_the_question_is_not_its_answer() -> None:
    """A number of the question is not its answer."""
    text = "A 10 m yacht may stay a night. A yacht pays £24 a night."
    assert best("What does a 10 m yacht pay a night?", text) == "A yacht pays £24 a night."


def test_equal_passages_are_ordered_by_the_scores_of_their_sources() -> None:
    """Equal passages are ordered by the scores of the retrieval."""
    sources = [Source("b", "Dogs are free.", 0.2), Source("a", "Dogs are free.", 0.9)]
    assert [ranked.source for ranked in rank("Are dogs free?", sources)] == ["a", "b"]


def test_passages_without_a_word_of_the_question_are_left_out() -> None:
    """A passage without a word of the question is left out. A question without such words finds nothing."""
    source = Source("a", "Dogs are free. Cats are not.")
    assert [ranked.passage.text for ranked in rank("Where are the cats?", [source])] == ["Cats are not."]
    assert rank("What is it?", [source]) == []
    assert rank("Dogs?", []) == []


def test_an_adjective_after_how_is_not_part_of_the_subject() -> None:
    """An adjective after "how" is not part of the question's subject."""
    assert subject("How heavy may a pallet be?") == ["pallet"]
    assert subject("How long is the bridge, the long bridge?") == ["bridg", "long"]


def test_other_languages_are_compared_word_by_word() -> None:
    """A question in another language finds the passage with the most words in common."""
    assert (
        best(
            "Wie viel kostet eine Überfahrt mit dem Fahrrad?",
            "Hunde fahren frei mit. Die Überfahrt mit dem Fahrrad kostet 5 Euro. Die Brücke ist grau.",
        )
        == "Die Überfahrt mit dem Fahrrad kostet 5 Euro."
    )
    assert best("自行车的票价是多少\uff1f", "狗免费。自行车的票价是五元。桥是灰色的。") == "自行车的票价是五元。"

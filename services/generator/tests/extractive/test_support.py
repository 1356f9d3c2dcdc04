"""The decision whether a source answers a question."""

import dataclasses

import pytest
from generator.domain import Source
from generator.extractive.answer import NO_SOURCES, NOT_FOUND, answer
from generator.extractive.passages import passages
from generator.extractive.support import supports
from hypothesis import given
from hypothesis import strategies as st

WORDS = (
    "pallet",
    "boat",
    "fare",
    "captain",
    "Petrel",
    "weigh",
    "weight",
    "900",
    "is",
    "the",
    "of",
    "pays",
    "12",
    "July",
)
TEXTS = st.lists(st.sampled_from([*WORDS, ".", "\n", "\n\n", "# ", ": ", "; "]), max_size=25).map(" ".join)
SOURCES = st.lists(
    st.builds(Source, st.just("a.md"), TEXTS, st.floats(0, 1), st.none() | st.floats(-1, 1)), max_size=6
)
QUESTIONS = st.lists(st.sampled_from([*WORDS, "How", "What", "heavy", "Everest"]), max_size=7).map(" ".join)


def is_supported(question: str, source: Source) -> bool:
    return supports(question, source, passages(source.text))


@given(QUESTIONS, SOURCES, SOURCES)
def test_more_sources_never_turn_an_answer_into_a_refusal(
    question: str, few: list[Source], more: list[Source]
) -> None:
    """An answer remains an answer with more sources, before or after the others."""
    refusals = (NOT_FOUND, NO_SOURCES)
    if answer(question, few) not in refusals:
        assert answer(question, [*few, *more]) not in refusals
        assert answer(question, [*more, *few]) not in refusals


@given(QUESTIONS, SOURCES)
def test_there_is_an_answer_if_a_source_supports_it(question: str, sources: list[Source]) -> None:
    """There is an answer if and only if a source supports it."""
    answered = answer(question, sources) not in (NOT_FOUND, NO_SOURCES)
    assert answered == any(is_supported(question, source) for source in sources)


def test_a_source_without_a_name_of_the_question_does_not_support_it() -> None:
    """A source without a name of the question does not support it, unless the name of the source has it."""
    source = Source("bridge.md", "The bridge is 412 metres long and was opened in 1974.", 1.0, 0.6)
    assert is_supported("How long is the bridge?", source)
    assert not is_supported("How long is the Golden Gate bridge?", source)
    assert not is_supported("How long is the A380?", source)
    assert is_supported(
        "How long is the Brannoch bridge?", dataclasses.replace(source, name="brannoch-plan.pdf#page=3")
    )


def test_the_first_word_of_a_sentence_is_not_a_name() -> None:
    """A capital letter at the beginning of a sentence does not make a word a name."""
    source = Source("a.md", "The toll is paid until midnight. Drivers who forget pay £35.", 1.0, 0.4)
    assert is_supported("I forgot the toll. Motorists pay what?", source)


@pytest.mark.parametrize(("cosine", "expected"), [(0.1, False), (0.25, True), (None, True)])
def test_few_common_words_need_a_sufficient_cosine_if_it_is_known(cosine: float | None, *, expected: bool) -> None:
    """Two of four words support a question only if the cosine is unknown or not close to 0."""
    source = Source("a.md", "The deck crew checks each lashing.", 1.0, cosine)
    assert is_supported("Which crew paints the deck in autumn?", source) is expected


@pytest.mark.parametrize(("cosine", "expected"), [(0.3, False), (0.55, True), (None, False)])
def test_a_high_cosine_supports_a_question_without_common_words(cosine: float | None, *, expected: bool) -> None:
    """A source without a word of the question supports it if the cosine is high."""
    source = Source("a.md", "Subject access requests are settled within one month.", 1.0, cosine)
    assert is_supported("How quickly must a customer hear what we store?", source) is expected
    assert (answer("How quickly must a customer hear what we store?", [source]) != NOT_FOUND) is expected


def test_words_of_one_stem_are_related() -> None:
    """A word that differs from a word of the question only in its ending counts as related."""
    source = Source("a.md", "Members hold the election in November.", 1.0, 0.2)
    assert is_supported("Who elects the electors?", source)
    assert not is_supported("Who elopes with whom?", source)


def test_a_source_of_headings_has_nothing_to_quote() -> None:
    """A source that consists of headings does not answer a question, even with a high cosine."""
    assert not is_supported("Dogs?", Source("a.md", "# Dogs", 1.0, 0.9))
    assert answer("Dogs?", [Source("a.md", "# Dogs", 1.0, 0.9)]) == NOT_FOUND

from dataclasses import replace

from gateway.domain import Passage

PASSAGE = Passage("p", "docs", "d", "a.pdf", "a.pdf#page=2", "One. Two. Three.", 0.4)


def test_what_a_model_gets_of_a_passage() -> None:
    """Its captions, as far as they still stand in the text; without any the whole text."""
    assert PASSAGE.shown == "One. Two. Three."
    captioned = replace(PASSAGE, captions=("One.", "Three."))
    assert captioned.shown == "One. Three."
    assert replace(captioned, text="[REDACTED] Two. Three.").shown == "Three."
    assert replace(captioned, text="Nothing of it.").shown == "Nothing of it."


def test_relevance_is_the_rerankers_where_there_is_one() -> None:
    """Else the search's; a score of 0 is one."""
    assert PASSAGE.relevance == 0.4
    assert replace(PASSAGE, reranker_score=0.0).relevance == 0.0

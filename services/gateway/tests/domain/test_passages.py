from dataclasses import replace

from gateway.domain import Passage

PASSAGE = Passage("p", "docs", "d", "a.pdf", "a.pdf#page=2", "One. Two. Three.", 0.4)


def test_the_model_gets_captions_or_the_whole_text() -> None:
    """The model gets the captions that the text still contains, or the whole text without captions."""
    assert PASSAGE.prompt_text == "One. Two. Three."
    captioned = replace(PASSAGE, captions=("One.", "Three."))
    assert captioned.prompt_text == "One. Three."
    assert replace(captioned, text="[REDACTED] Two. Three.").prompt_text == "Three."
    assert replace(captioned, text="Nothing of it.").prompt_text == "Nothing of it."


def test_relevance_is_the_score_of_the_reranker() -> None:
    """Without a reranker's score, the relevance is the search's score. A score of 0 is a score."""
    assert PASSAGE.relevance == 0.4
    assert replace(PASSAGE, reranker_score=0.0).relevance == 0.0

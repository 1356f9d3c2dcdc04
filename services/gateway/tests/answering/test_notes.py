from dataclasses import replace

from gateway.answering.notes import NO_QUESTIONS, not_ranked, notes
from gateway.domain import Note, Passage, PromptOptions, Retrieval, Selection, Subject, Turn
from servicekit.principal import LOCAL

TURN = Turn(
    LOCAL, "why?", retrieval=Retrieval(("docs",), semantic_ranker=True), prompting=PromptOptions(follow_ups=True)
)
FOUND = Selection((Passage("p", "docs", "d", "a.md", "a.md", "text", 1.0),))


def test_each_missing_part_has_its_note() -> None:
    """Each missing part of the request has a note under its subject."""
    fit = replace(TURN, prompting=replace(TURN.prompting, follow_ups=False))
    assert notes(TURN, fit, query="It failed.", found=FOUND, left_out=3, pictures="None.") == (
        Note(Subject.QUERY, "It failed."),
        Note(Subject.RESULTS, "No reranker is configured: the order is that of the search."),
        Note(Subject.RESULTS, "None."),
        Note(Subject.PROMPT, "The model's window has no room for the oldest 3 messages of the conversation."),
        Note(Subject.PROMPT, NO_QUESTIONS),
    )


def test_a_complete_turn_has_no_notes() -> None:
    """A turn without missing parts has no notes."""
    assert notes(TURN, TURN, query="", found=None, left_out=0, pictures="") == ()


def test_the_note_on_one_message_is_singular() -> None:
    """The note on one message uses the singular."""
    [note] = notes(TURN, TURN, query="", found=None, left_out=1, pictures="")
    assert "the oldest message of" in note.text


def found(score: float | None, not_reranked: str = "") -> Selection:
    passage = Passage("a", "docs", "d", "a.md", "a.md", "text", 1.0, reranker_score=score)
    return Selection((passage,), not_reranked=not_reranked)


REQUESTED = Retrieval(minimum_reranker_score=2.0, semantic_ranker=True)


def test_without_a_reranker() -> None:
    """The note on a missing reranker names the missing effects."""
    assert not_ranked(found(None), REQUESTED) == (
        "No reranker is configured: the order is that of the search; no passage was omitted because of its score."
    )
    assert not_ranked(found(None), Retrieval(semantic_ranker=True)) == (
        "No reranker is configured: the order is that of the search."
    )


def test_a_reranker_that_failed() -> None:
    """The note on a failed reranker has its failure and the missing effects."""
    failed = found(None, "The reranker 'r' did not answer within 2 s.")
    assert not_ranked(failed, Retrieval(semantic_ranker=True)) == (
        "The reranker 'r' did not answer within 2 s: the order is that of the search."
    )


def test_a_minimum_alone_runs_no_reranker() -> None:
    """A minimum score without a reranker has a note, except the score 0, which some clients always send."""
    assert not_ranked(found(None), Retrieval(minimum_reranker_score=1.5)) == (
        "minimum_reranker_score needs semantic_ranker: no passage was omitted because of its score."
    )
    assert not_ranked(found(None), Retrieval(minimum_reranker_score=0.0)) == ""


def test_without_ranking_there_is_no_note() -> None:
    """No note appears without a request for ranking, without passages, or with a reranker's scores."""
    assert not_ranked(found(None), Retrieval(semantic_captions=True)) == ""
    assert not_ranked(None, REQUESTED) == not_ranked(Selection(()), REQUESTED) == ""
    assert not_ranked(found(1.0), REQUESTED) == ""

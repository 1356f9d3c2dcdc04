from dataclasses import replace

from gateway import notes as said
from gateway.domain import Note, Passage, Retrieval, Selection, Subject, Turn
from gateway.notes import notes
from servicekit.principal import LOCAL

TURN = Turn(LOCAL, "why?", retrieval=Retrieval(("docs",), semantic_ranker=True), follow_ups=True)
FOUND = Selection((Passage("p", "docs", "d", "a.md", "a.md", "text", 1.0),))


def test_each_note_stands_where_it_belongs() -> None:
    """What was asked for and not done, and what was left out."""
    fit = replace(TURN, follow_ups=False)
    assert notes(TURN, fit, query="It failed.", found=FOUND, left_out=3, pictures="None.") == (
        Note(Subject.QUERY, "It failed."),
        Note(Subject.RESULTS, "No reranker is configured: the order is the search's own."),
        Note(Subject.RESULTS, "None."),
        Note(Subject.PROMPT, "The model's window has no room for the oldest 3 messages of the conversation."),
        Note(Subject.PROMPT, said.NO_QUESTIONS),
    )


def test_where_all_is_as_it_was_asked_there_is_nothing_to_say() -> None:
    """Also where nothing was found that could be ordered or shown."""
    assert notes(TURN, TURN, query="", found=None, left_out=0, pictures="") == ()


def test_one_message_is_one_message() -> None:
    """A greeting, for example."""
    [note] = notes(TURN, TURN, query="", found=None, left_out=1, pictures="")
    assert "the oldest message of" in note.text

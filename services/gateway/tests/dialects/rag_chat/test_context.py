from typing import Any

from gateway.dialects.rag_chat.context import opening, thoughts
from gateway.domain import Context, Message, Note, Retrieval, Step, Subject, Turn, Usage
from servicekit.principal import LOCAL

TURN = Turn(LOCAL, "And on Sundays?", retrieval=Retrieval(("docs",)))
PROMPT = (Message("user", "x"),)


def props(context: Context) -> dict[str, Any]:
    return {thought["title"]: thought["props"] for thought in thoughts(TURN, context, context.steps)}


def test_the_search_query_has_its_time_and_tokens() -> None:
    """The thought about a rewritten query has the time and the tokens of the model."""
    steps = (Step("retrieve", 2.0), Step("rewrite", 7.5, Usage(30, 4)))
    context = Context("ferry on Sundays", (), PROMPT, steps)
    thought_props = props(context)["Generated search query"]
    assert thought_props["duration_ms"] == 7.5
    assert thought_props["token_usage"] == {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    [question, query, *_] = opening(TURN, context)["thoughts"]
    assert (question["description"], query["description"]) == ("And on Sundays?", "ferry on Sundays")


def test_notes_are_in_their_thoughts() -> None:
    """Each thought has its notes, and the prompt has the number of omitted messages."""
    notes = (
        Note(Subject.QUERY, "a"),
        Note(Subject.RESULTS, "b"),
        Note(Subject.PROMPT, "c"),
        Note(Subject.PROMPT, "d"),
    )
    thought_props = props(Context("q", (), PROMPT, (), 4, notes))
    assert thought_props["Generated search query"]["notes"] == ["a"]
    assert thought_props["Results"]["notes"] == ["b"]
    assert thought_props["Prompt"]["notes"] == ["c", "d"]
    assert thought_props["Prompt"]["messages_left_out"] == 4


def test_empty_props_are_absent() -> None:
    """The thoughts omit notes, omitted messages and usage that do not exist."""
    for thought_props in props(Context("q", (), PROMPT, ())).values():
        assert thought_props.keys().isdisjoint({"notes", "messages_left_out", "token_usage"})

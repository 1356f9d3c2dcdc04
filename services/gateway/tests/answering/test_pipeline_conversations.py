"""Conversations: rewritten queries, histories that are cut, and follow-up questions."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.pipeline import MESSAGE, QUESTION, World, of_type, passage, steps, turn, words
from gateway.answering import prompts
from gateway.domain import (
    Action,
    Context,
    Delta,
    Detections,
    Detectors,
    Done,
    Finish,
    FollowUps,
    Message,
    PromptOptions,
    PromptStyle,
    Retrieval,
    Subject,
    Turn,
    Usage,
)
from servicekit.errors import Blocked, InvalidRequest

CONVERSATION = (Message("user", QUESTION), Message("assistant", "At nine."))
ON_SUNDAYS = "does the ferry leave on Sundays"


def scripted(*scripts: Sequence[str], only_quotes: bool = False) -> FakeGenerator:
    """Return a generator that answers the prompts in order with these pieces."""
    *first, last = [FakeGenerator.words(*texts) for texts in scripts]
    return FakeGenerator(last, scripts=deque(first), only_quotes=only_quotes)


def rewriting(question: str = "and on Sundays", *, follow_ups: bool = False, **more: Any) -> Turn:
    prompting = PromptOptions(rewrite=True, follow_ups=follow_ups)
    return turn(question, history=CONVERSATION, prompting=prompting, **more)


async def test_the_rewritten_query_is_searched() -> None:
    """The rewritten query is searched after the question, and the model gets the original question."""
    world = World(generator=scripted([ON_SUNDAYS], ["No."]))
    world.retriever.indexes["docs"].insert(0, passage(3, "Sundays and"))
    events = await world.events(rewriting(retrieval=Retrieval(("docs",), top=1)))
    assert world.retriever.queries == ["and on Sundays", ON_SUNDAYS]
    context = of_type(Context, events)[0]
    assert (context.query, context.notes) == (ON_SUNDAYS, ())
    assert [passage.id for passage in context.passages] == ["p1"]
    assert world.generator.prompts[1].question == "and on Sundays"
    assert steps(events) == ["retrieve", "rewrite", "budget", "first token", "generate"]
    assert of_type(Done, events)[0].steps[1].usage == Usage(7, 1)
    assert of_type(Usage, events) == [Usage(7, 1)]


async def test_a_question_that_needs_no_change_is_searched_once() -> None:
    """A question that is not changed by the rewriting is searched once."""
    world = World(generator=scripted([QUESTION], ["No."]))
    await world.events(rewriting(QUESTION))
    assert world.retriever.queries == [QUESTION]


async def test_a_failed_rewriting_leaves_a_note() -> None:
    """A failed rewriting leaves a note, and the question is searched."""
    world = World(generator=scripted([""], ["No."]))
    events = await world.events(rewriting())
    context = of_type(Context, events)[0]
    assert context.query == "and on Sundays"
    assert [note.subject for note in context.notes] == [Subject.QUERY]
    assert world.retriever.queries == ["and on Sundays"]


async def test_the_redacted_question_is_rewritten() -> None:
    """The rewriting gets the redacted question, and without a query the redacted question is searched."""
    detectors = Detectors(input=words(Action.REDACT))
    for query, searched in (("the ferry", "the ferry"), ("", "my [REDACTED]")):
        world = World(generator=scripted([query], ["No."]))
        await world.events(replace(rewriting("my secret"), detectors=detectors))
        assert "secret" not in str(world.generator.prompts[0].messages)
        assert world.retriever.queries == ["my secret", searched]


async def test_a_blocked_question_is_not_rewritten() -> None:
    """A blocked question is not rewritten."""
    world = World(generator=scripted(["the ferry"], ["No."]))
    with pytest.raises(Blocked):
        await world.events(replace(rewriting("my secret"), detectors=Detectors(input=words(Action.BLOCK))))
    assert world.generator.prompts == []


async def test_leaving_stops_the_rewriting() -> None:
    """The rewriting stops when the client leaves, and no other step begins."""
    world = World(generator=FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=asyncio.Event()))
    waiting = asyncio.ensure_future(anext(world.answer(rewriting())))
    await asyncio.sleep(0.02)
    assert len(world.generator.prompts) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (world.generator.closed, len(world.generator.prompts)) == (1, 1)
    assert len(asyncio.all_tasks()) == 1


async def test_a_conversation_that_is_too_long_is_cut() -> None:
    """A conversation that is too long is cut, and a note has the number of missing messages."""
    world = World()
    world.generator.window = 2000
    old = (Message("user", "w " * 900), Message("assistant", "w " * 900))
    events = await world.events(turn(history=(*old, *CONVERSATION)))
    context = of_type(Context, events)[0]
    assert context.omitted_messages == 2
    assert [note.subject for note in context.notes] == [Subject.PROMPT]
    assert world.generator.prompts[0].messages[1:3] == CONVERSATION


async def test_a_question_that_is_too_long_for_the_window_is_refused() -> None:
    """A question that is too long is refused, and so is a conversation that the client keeps complete."""
    world = World()
    world.generator.window = 200
    for requested in (turn("w " * 300), turn("w " * 300, retrieval=Retrieval())):
        with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
            await world.events(requested)
    uncut = turn(history=(Message("user", "w " * 300),), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(uncut)
    assert world.generator.prompts == []


FOLLOWED = ("At ", "nine.", "\n<", "<And on", " Sundays?>", ">\n<<Where", "?>>")
QUESTIONS = FollowUps(("And on Sundays?", "Where?"))


async def test_follow_up_questions_are_requested_and_cut_out() -> None:
    """Follow-up questions are requested, cut out of the text and returned before the finish."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn(prompting=PromptOptions(follow_ups=True)))
    assert "<<" in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of_type(Delta, events)) == "At nine."
    assert [type(event) for event in events][-4:] == [FollowUps, Finish, Usage, Done]
    assert of_type(FollowUps, events) == [QUESTIONS]


async def test_without_follow_up_questions_brackets_stay() -> None:
    """Double brackets stay in the text if no follow-up questions are requested."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn())
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of_type(Delta, events)) == "".join(FOLLOWED)


async def test_the_detectors_judge_the_questions_too() -> None:
    """Follow-up questions are redacted too, and their findings have no positions."""
    pieces = ("The secret: nine.\n", "<<Is the sec", "ret out?>>", "<<When?>>")
    world = World(generator=FakeGenerator.saying(*pieces))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.REDACT)), prompting=PromptOptions(follow_ups=True))
    )
    assert "".join(event.text for event in of_type(Delta, events)) == "The [REDACTED]: nine."
    assert of_type(FollowUps, events) == [FollowUps(("Is the [REDACTED] out?", "When?"))]
    findings = [finding for event in of_type(Detections, events) for finding in event.findings]
    assert [(found.start, found.end) for found in findings] == [(4, 10), (None, None)]


@pytest.mark.parametrize("action", [Action.REDACT, Action.BLOCK])
async def test_the_text_without_the_questions_is_judged(action: Action) -> None:
    """The detectors judge the text without the questions, as the client reads it."""
    world = World(generator=FakeGenerator.saying("The sec<<Wh", "y?>>ret is nine."))
    events = await world.events(
        turn(detectors=Detectors(output=words(action)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of_type(Delta, events))
    assert text == ("The [REDACTED] is nine." if action is Action.REDACT else f"The {MESSAGE}")


@pytest.mark.parametrize("text", ["<<Is the secret out?>>", "<<Why?>> secret", "<<Why?>>\n secret"])
async def test_a_blocked_answer_has_no_questions(text: str) -> None:
    """A blocked answer has the text and no questions."""
    world = World(generator=FakeGenerator.saying("At nine.\n", text))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.BLOCK)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of_type(Delta, events))
    assert text.endswith(MESSAGE)
    assert "<" not in text
    assert of_type(FollowUps, events) == []
    assert [event.reason for event in of_type(Finish, events)] == ["content_filter"]


async def test_a_model_that_only_quotes_gets_neither_request() -> None:
    """A model that only quotes gets neither rewriting nor follow-up questions, and notes say so."""
    world = World(generator=scripted(["a << b >> c"], only_quotes=True))
    events = await world.events(rewriting(follow_ups=True))
    assert len(world.generator.prompts) == 1
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert [note.subject for note in of_type(Context, events)[0].notes] == [Subject.QUERY, Subject.PROMPT]
    assert "".join(event.text for event in of_type(Delta, events)) == "a << b >> c"


async def test_the_order_of_the_reranker_and_the_note_without_it() -> None:
    """Passages have the order of the reranker's scores. Without scores the answer has a note."""
    world, retrieval = World(), Retrieval(("docs",), top=3, semantic_ranker=True)
    events = await world.events(turn(retrieval=retrieval))
    assert [note.subject for note in of_type(Context, events)[0].notes] == [Subject.RESULTS]
    first, second = world.retriever.indexes["docs"]
    world.retriever.indexes["docs"] = [replace(first, reranker_score=1.0), replace(second, reranker_score=2.0)]
    context = of_type(Context, await world.events(turn(retrieval=retrieval)))[0]
    assert [passage.id for passage in context.passages] == ["p2", "p1"]
    assert context.notes == ()
    [kept] = of_type(Context, await world.events(turn(retrieval=replace(retrieval, minimum_reranker_score=1.5))))[
        0
    ].passages
    assert kept.id == "p2"
    world.retriever.not_reranked = "The reranker 'r' failed."
    [note] = of_type(Context, await world.events(turn(retrieval=retrieval)))[0].notes
    assert note.text == "The reranker 'r' failed: the order is that of the search."


async def test_the_system_message_names_the_language() -> None:
    """The system message names the language of the answer."""
    world = World()
    await world.events(turn(prompting=PromptOptions(language="de")))
    assert prompts.IN_LANGUAGE.format("de") in world.generator.prompts[0].messages[0].text

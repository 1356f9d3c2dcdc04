import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from gateway.answering import query_rewriting
from gateway.answering.checks import Checks
from gateway.answering.query_rewriting import LONGEST_QUERY, Query, QueryRewriting
from gateway.answering.timeline import Timeline
from gateway.domain import (
    Action,
    Batch,
    Delta,
    Detector,
    Detectors,
    Finish,
    Message,
    PromptOptions,
    Retrieval,
    Step,
    Turn,
    Usage,
)
from gateway.ports.answering import Prompt
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, InvalidRequest, Unavailable
from servicekit.principal import LOCAL

QUESTION = "And on Sundays?"
HISTORY = (
    Message("system", "Be kind."),
    Message("user", "When does the ferry leave?"),
    Message("assistant", "At nine [1.md]."),
)
TURN = Turn(
    LOCAL, QUESTION, HISTORY, model="m", retrieval=Retrieval(("docs",)), prompting=PromptOptions(rewrite=True)
)


@dataclass
class World:
    generator: FakeGenerator
    guardrails: FakeGuardrails = field(default_factory=FakeGuardrails)
    timeline: Timeline = field(default_factory=Timeline)

    async def query(self, turn: Turn = TURN, seconds: float = 30) -> Query:
        stage = QueryRewriting(self.generator, Checks(self.guardrails))
        return await stage.query(turn, self.timeline, Deadline.after(seconds))


def saying(*texts: str) -> World:
    return World(FakeGenerator.saying(*texts))


async def test_the_model_makes_the_query() -> None:
    """From the conversation and the question, with its own model, without chance, and shortly."""
    world = saying("ferry departure", " on Sundays\n")
    assert await world.query() == Query("ferry departure on Sundays")
    [prompt] = world.generator.prompts
    assert (prompt.model, prompt.sources) == ("m", ())
    assert prompt.parameters_json == b'{"temperature":0,"max_tokens":100}'
    assert [message.role for message in prompt.messages] == ["system", "user"]
    asked = prompt.messages[1].text
    assert "user: When does the ferry leave?\n\nassistant: At nine [1.md]." in asked
    assert asked.endswith(QUESTION)
    assert "Be kind" not in asked


async def test_a_model_that_thinks_is_asked_as_such_take_it() -> None:
    """With the turn's effort, room for its thoughts, and without what such models refuse."""
    world = saying("ferry")
    await world.query(replace(TURN, parameters_json=b'{"n":1e400,"reasoning_effort":"low"}'))
    parameters = world.generator.prompts[0].parameters_json
    assert parameters == b'{"reasoning_effort":"low","max_completion_tokens":1000}'


async def test_its_time_and_its_tokens_are_told() -> None:
    """A step of its own."""
    world = saying("ferry")
    await world.query()
    [step] = world.timeline.steps
    assert step == Step("rewrite", step.duration_ms, Usage(7, 1), start_ms=step.start_ms)


@pytest.mark.parametrize(
    "asked",
    [
        replace(TURN, prompting=replace(TURN.prompting, rewrite=False)),
        replace(TURN, history=()),
        replace(TURN, history=HISTORY[:1]),
        replace(TURN, retrieval=Retrieval()),
    ],
)
async def test_where_there_is_nothing_to_rewrite_nobody_is_asked(asked: Turn) -> None:
    """Not wanted, nothing said before, nothing to search: the question, without a step and without a note."""
    world = saying("ferry")
    assert await world.query(asked) == Query(QUESTION)
    assert (world.generator.prompts, world.timeline.steps) == ([], ())


async def test_a_long_conversation_is_not_sent_whole() -> None:
    """The latest messages, and of each the beginning."""
    history = tuple(Message("user", f"{number} " + "x" * 50_000) for number in range(100))
    world = saying("ferry")
    await world.query(replace(TURN, history=history, question="y" * 50_000))
    text = world.generator.prompts[0].messages[1].text
    assert len(text) < 20_000
    assert "user: 99 " in text
    assert "user: 93 " not in text


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ('"ferry on Sundays"', "ferry on Sundays"),
        ("„Fähre am Sonntag“", "Fähre am Sonntag"),
        ('"ferry" on Sundays', '"ferry" on Sundays'),
        ("<think>They mean the\nferry.</think>\n\nferry on Sundays", "ferry on Sundays"),
        (" ferry\n on  Sundays ", "ferry on Sundays"),
        ("x" * LONGEST_QUERY, "x" * LONGEST_QUERY),
    ],
)
async def test_what_stands_around_the_query_is_taken_off(said: str, query: str) -> None:
    """Quotation marks around all of it, thoughts, white space."""
    assert await saying(said).query() == Query(query)


@pytest.mark.parametrize("said", ["", " \n", '""', "x" * (LONGEST_QUERY + 1), "<think>ferry</think>"])
async def test_what_is_no_query_is_not_searched(said: str) -> None:
    """Nothing, or an answer."""
    assert await saying(said).query() == Query(QUESTION, query_rewriting.UNUSABLE)


async def test_a_query_that_was_cut_short_is_not_searched() -> None:
    """Half a sentence finds half of what was meant."""
    for reason in ("length", "content_filter"):
        world = World(FakeGenerator([[Delta(0, "ferry"), Finish(0, reason)]]))
        assert await world.query() == Query(QUESTION, query_rewriting.UNUSABLE)


async def test_a_model_that_does_not_stop_is_stopped() -> None:
    """Some know no longest answer; what they say is not gathered."""
    world = World(FakeGenerator([[Delta(0, "x" * 1000)]] * 1000))
    assert await world.query() == Query(QUESTION, query_rewriting.UNUSABLE)
    assert world.generator.closed == 1


@pytest.mark.parametrize("error", [Unavailable("gone"), DeadlineExceeded("slow"), InvalidRequest("no temperature")])
async def test_a_failing_model_does_not_fail_the_answer(error: Any) -> None:
    """The question is searched for, and the note does not tell what it was."""
    for script in ([error], [[Delta(0, "ferry")], error]):
        assert await World(FakeGenerator(script)).query() == Query(QUESTION, query_rewriting.FAILED)


async def test_a_model_that_breaks_off_has_made_no_query() -> None:
    """Its words without an end may be half of it."""
    assert await World(FakeGenerator([[Delta(0, "ferry")]])).query() == Query(QUESTION, query_rewriting.FAILED)


async def test_a_model_that_only_quotes_is_not_asked() -> None:
    """Where the platform runs without a model server."""
    world = World(FakeGenerator(FakeGenerator.words("ferry"), only_quotes=True))
    assert await world.query() == Query(QUESTION, query_rewriting.ONLY_QUOTES)
    assert world.generator.prompts == []


@pytest.mark.parametrize("action", list(Action))
async def test_the_query_goes_through_the_output_detectors(action: Action) -> None:
    """Clients see it. What they would take out or stop is not used; what they only report is."""
    world = saying("my secret")
    turn = replace(TURN, detectors=Detectors(output=(Detector("words", action),)))
    stopped = action is not Action.REPORT
    assert await world.query(turn) == (Query(QUESTION, query_rewriting.STOPPED) if stopped else Query("my secret"))
    assert world.guardrails.judged == ["my secret"]


@pytest.mark.parametrize(("left", "given"), [(12.0, 4.0), (300.0, 10.0)])
async def test_the_model_has_little_time(left: float, given: float) -> None:
    """A third of what is left, ten seconds at most."""
    seen: list[float] = []

    class Generator(FakeGenerator):
        def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
            seen.append(deadline.remaining())
            return super().generate(prompt, deadline)

    await World(Generator(FakeGenerator.words("ferry"))).query(seconds=left)
    assert given - 1 < seen[0] <= given


async def test_nothing_is_asked_when_no_time_is_left() -> None:
    """Whoever comes next says so."""
    world = saying("ferry")
    assert await world.query(seconds=-1) == Query(QUESTION, query_rewriting.FAILED)
    assert world.generator.prompts == []


async def test_a_client_that_leaves_stops_the_model() -> None:
    """At once."""
    world = World(FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=asyncio.Event()))
    asking = asyncio.ensure_future(world.query())
    await asyncio.sleep(0.01)
    assert world.generator.prompts != []
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert world.generator.closed == 1

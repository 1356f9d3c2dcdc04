import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from gateway.answering import query_rewriting
from gateway.answering.checks import Checks
from gateway.answering.query_rewriting import MAX_QUERY_LENGTH, Query, QueryRewriting
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


async def test_the_model_writes_the_query() -> None:
    """The model of the turn writes a short query from the conversation, with the temperature 0."""
    world = saying("ferry departure", " on Sundays\n")
    assert await world.query() == Query("ferry departure on Sundays")
    [prompt] = world.generator.prompts
    assert (prompt.model, prompt.sources) == ("m", ())
    assert prompt.parameters_json == b'{"temperature":0,"max_tokens":100}'
    assert [message.role for message in prompt.messages] == ["system", "user"]
    text = prompt.messages[1].text
    assert "user: When does the ferry leave?\n\nassistant: At nine [1.md]." in text
    assert text.endswith(QUESTION)
    assert "Be kind" not in text


async def test_a_reasoning_model_gets_other_parameters() -> None:
    """A reasoning model gets the turn's effort, a larger limit and no temperature."""
    world = saying("ferry")
    await world.query(replace(TURN, parameters_json=b'{"n":1e400,"reasoning_effort":"low"}'))
    parameters = world.generator.prompts[0].parameters_json
    assert parameters == b'{"reasoning_effort":"low","max_completion_tokens":1000}'


async def test_the_rewriting_has_its_time_and_tokens() -> None:
    """The rewriting is a step with its time and its tokens."""
    world = saying("ferry")
    await world.query()
    [step] = world.timeline.steps
    assert step == Step("rewrite", step.duration_ms, Usage(7, 1), start_ms=step.start_ms)


@pytest.mark.parametrize(
    "requested",
    [
        replace(TURN, prompting=replace(TURN.prompting, rewrite=False)),
        replace(TURN, history=()),
        replace(TURN, history=HISTORY[:1]),
        replace(TURN, retrieval=Retrieval()),
    ],
)
async def test_the_model_is_not_called_without_need(requested: Turn) -> None:
    """The model is not called if rewriting is off, or without a history or a search."""
    world = saying("ferry")
    assert await world.query(requested) == Query(QUESTION)
    assert (world.generator.prompts, world.timeline.steps) == ([], ())


async def test_a_long_conversation_is_cut() -> None:
    """The prompt has only the latest messages, and each is cut."""
    history = tuple(Message("user", f"{number} " + "x" * 50_000) for number in range(100))
    world = saying("ferry")
    await world.query(replace(TURN, history=history, question="y" * 50_000))
    text = world.generator.prompts[0].messages[1].text
    assert len(text) < 20_000
    assert "user: 99 " in text
    assert "user: 93 " not in text


@pytest.mark.parametrize(
    ("answer", "query"),
    [
        ('"ferry on Sundays"', "ferry on Sundays"),
        ("„Fähre am Sonntag“", "Fähre am Sonntag"),
        ('"ferry" on Sundays', '"ferry" on Sundays'),
        ("<think>They mean the\nferry.</think>\n\nferry on Sundays", "ferry on Sundays"),
        (" ferry\n on  Sundays ", "ferry on Sundays"),
        ("x" * MAX_QUERY_LENGTH, "x" * MAX_QUERY_LENGTH),
    ],
)
async def test_text_around_the_query_is_removed(answer: str, query: str) -> None:
    """Quotation marks around the query, reasoning and extra white space are removed."""
    assert await saying(answer).query() == Query(query)


@pytest.mark.parametrize("answer", ["", " \n", '""', "x" * (MAX_QUERY_LENGTH + 1), "<think>ferry</think>"])
async def test_an_empty_or_long_query_is_not_used(answer: str) -> None:
    """An empty or too long query is not used."""
    assert await saying(answer).query() == Query(QUESTION, query_rewriting.UNUSABLE)


async def test_a_query_that_is_cut_short_is_not_used() -> None:
    """A query that is cut short is not used."""
    for reason in ("length", "content_filter"):
        world = World(FakeGenerator([[Delta(0, "ferry"), Finish(0, reason)]]))
        assert await world.query() == Query(QUESTION, query_rewriting.UNUSABLE)


async def test_a_model_that_does_not_stop_is_stopped() -> None:
    """A model that does not stop is closed at the longest query."""
    world = World(FakeGenerator([[Delta(0, "x" * 1000)]] * 1000))
    assert await world.query() == Query(QUESTION, query_rewriting.UNUSABLE)
    assert world.generator.closed == 1


@pytest.mark.parametrize("error", [Unavailable("gone"), DeadlineExceeded("slow"), InvalidRequest("no temperature")])
async def test_a_failing_model_does_not_fail_the_answer(error: Any) -> None:
    """A failure of the model leaves a note without details, and the question is searched."""
    for script in ([error], [[Delta(0, "ferry")], error]):
        assert await World(FakeGenerator(script)).query() == Query(QUESTION, query_rewriting.FAILED)


async def test_a_query_without_a_finish_is_not_used() -> None:
    """A query without a finish is not used."""
    assert await World(FakeGenerator([[Delta(0, "ferry")]])).query() == Query(QUESTION, query_rewriting.FAILED)


async def test_a_model_that_only_quotes_is_not_called() -> None:
    """A model that only quotes is not called."""
    world = World(FakeGenerator(FakeGenerator.words("ferry"), only_quotes=True))
    assert await world.query() == Query(QUESTION, query_rewriting.ONLY_QUOTES)
    assert world.generator.prompts == []


@pytest.mark.parametrize("action", list(Action))
async def test_the_query_is_judged_by_the_output_detectors(action: Action) -> None:
    """A query that the output detectors would change is not used. A reported one is."""
    world = saying("my secret")
    turn = replace(TURN, detectors=Detectors(output=(Detector("words", action),)))
    stopped = action is not Action.REPORT
    assert await world.query(turn) == (Query(QUESTION, query_rewriting.STOPPED) if stopped else Query("my secret"))
    assert world.guardrails.judged_texts == ["my secret"]


@pytest.mark.parametrize(("remaining", "allowed"), [(12.0, 4.0), (300.0, 10.0)])
async def test_the_time_for_the_rewriting_is_limited(remaining: float, allowed: float) -> None:
    """The model gets a third of the remaining time, and at most ten seconds."""
    seen: list[float] = []

    class Generator(FakeGenerator):
        def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
            seen.append(deadline.remaining())
            return super().generate(prompt, deadline)

    await World(Generator(FakeGenerator.words("ferry"))).query(seconds=remaining)
    assert allowed - 1 < seen[0] <= allowed


async def test_the_model_is_not_called_after_the_deadline() -> None:
    """The model is not called after the deadline."""
    world = saying("ferry")
    assert await world.query(seconds=-1) == Query(QUESTION, query_rewriting.FAILED)
    assert world.generator.prompts == []


async def test_a_client_that_leaves_stops_the_model() -> None:
    """The model is closed when the client leaves."""
    world = World(FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=asyncio.Event()))
    task = asyncio.ensure_future(world.query())
    await asyncio.sleep(0.01)
    assert world.generator.prompts != []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.generator.closed == 1

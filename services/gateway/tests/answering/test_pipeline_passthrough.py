"""Requests that pass through unchanged, required indexes, and the selection of passages."""

from dataclasses import replace

import pytest
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.pipeline import ORIGINAL, QUESTION, World, of_type, passage, steps, turn, words
from gateway.answering.error_text import WITHHELD
from gateway.domain import (
    Action,
    Chunk,
    Completion,
    Context,
    Detectors,
    Done,
    OriginalRequest,
    PromptStyle,
    Retrieval,
    Selection,
    Turn,
)
from gateway.ports.answering import Prompt
from servicekit.errors import InvalidRequest, NotFound, UpstreamRejected
from servicekit.principal import LOCAL


async def test_a_pass_through_stays_unchanged() -> None:
    """A passed-through request and its chunks stay unchanged, and only the steps are added."""
    world = World(generator=FakeGenerator([[Chunk(b'{"a":1}')], [Chunk(b'{"a":2}')]]))
    events = await world.events(
        Turn(LOCAL, "", model="m", original=OriginalRequest(json=ORIGINAL, passthrough=True))
    )
    assert world.generator.prompts == [Prompt(LOCAL, "m", passthrough_json=ORIGINAL)]
    assert world.retriever.queries == []
    assert events[:-1] == [Chunk(b'{"a":1}'), Chunk(b'{"a":2}')]
    assert steps(events) == ["first token", "generate"]


@pytest.mark.parametrize("index", ["empty", "docs"])
async def test_nothing_found_is_a_pass_through(index: str) -> None:
    """A request of OpenAI without passages that fit is passed through."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]], window=20))
    events = await world.events(
        turn(
            "ferry",
            retrieval=Retrieval((index,), top=1),
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            detectors=Detectors(input=words(Action.BLOCK)),
            original=OriginalRequest(json=ORIGINAL),
        )
    )
    assert world.generator.prompts[0].passthrough_json == ORIGINAL
    assert of_type(Context, events) == []
    assert steps(events) == ["check input", "retrieve", "budget", "first token", "generate"]


@pytest.mark.parametrize(
    "detectors",
    [
        Detectors(output=words(Action.REPORT)),
        Detectors(input=words(Action.REDACT)),
        Detectors(context=words(Action.BLOCK)),
    ],
)
async def test_redaction_blocking_and_output_detectors_prevent_a_pass_through(detectors: Detectors) -> None:
    """A redacted question, a blocked passage or output detectors prevent the pass-through."""
    world = World()
    world.retriever.indexes["docs"] = [passage(2, "a secret ferry")] if detectors.context else []
    await world.events(
        turn(
            "my secret",
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            detectors=detectors,
            original=OriginalRequest(json=ORIGINAL),
        )
    )
    assert world.generator.prompts[0].passthrough_json == b""


async def test_without_sources_the_model_is_still_called() -> None:
    """A model of another dialect is called with an empty list of sources."""
    world = World()
    await world.events(turn(retrieval=Retrieval(("empty",), top=3)))
    assert world.generator.prompts[0].messages[-1].text == f"{QUESTION}\n\nSources:\n"


async def test_only_passages_that_fit_are_used() -> None:
    """A passage that is too large is left out, and a smaller one after it is used."""
    world = World()
    world.retriever.indexes["docs"] = [passage(1, "ferry " * 1000), passage(2, "ferry")]
    world.generator.window = 1500
    events = await world.events(turn("ferry"))
    assert [passage.id for passage in of_type(Context, events)[0].passages] == ["p2"]


@pytest.mark.parametrize("index", ["docs", "empty"])
async def test_a_prompt_that_is_too_long_is_refused(index: str) -> None:
    """A prompt larger than the window is refused, with or without passages."""
    world = World()
    world.generator.window = 3
    plain = turn("one two three", retrieval=Retrieval((index,), top=3), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    await world.events(plain)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(replace(plain, question="one two three four"))


async def test_the_last_event_has_the_selection_of_passages() -> None:
    """The last event has the selection of passages, also an empty one. Without a search it has none."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    world.retriever.indexes["docs"] = [passage(1, "ferry"), passage(2, "ferry " * 9000)]
    requested = turn("ferry", style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE, original=OriginalRequest(json=ORIGINAL))
    done = (await world.events(requested))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((world.retriever.indexes["docs"][0],), 2, 0, 1)
    world.retriever.indexes["docs"].pop(0)
    done = (await world.events(requested))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((), 0, 0, 1)
    done = (await world.events(turn(retrieval=Retrieval())))[-1]
    assert isinstance(done, Done)
    assert done.selection is None


@pytest.mark.parametrize("passthrough", [True, False])
async def test_a_required_index_must_exist(passthrough: bool) -> None:
    """An unknown required index is refused before the deferred error is raised and the model is called."""
    world = World()
    requested = Turn(
        LOCAL,
        "q",
        original=OriginalRequest(json=ORIGINAL, passthrough=passthrough, required_indexes=("docs", "nowhere")),
    )
    for each in (
        requested,
        replace(requested, original=replace(requested.original, deferred_error=InvalidRequest("wrong"))),
    ):
        with pytest.raises(NotFound, match="nowhere"):
            await world.events(each)
    assert world.generator.prompts == []


async def test_the_check_of_an_index_is_timed() -> None:
    """The check of a required index is a step with its own time."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    requested = Turn(
        LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True, required_indexes=("docs",))
    )
    assert steps(await world.events(requested)) == ["find index", "first token", "generate"]


async def test_the_deferred_error_is_raised_before_the_search() -> None:
    """The deferred error of a request is raised before the search and the model."""
    world = World()
    error = InvalidRequest("wrong", field="messages")
    with pytest.raises(InvalidRequest) as caught:
        await world.events(turn(original=OriginalRequest(required_indexes=("docs",), deferred_error=error)))
    assert caught.value is error
    assert (world.retriever.queries, world.generator.prompts) == ([], [])


async def test_an_unknown_index_is_raised_before_the_model_is_called() -> None:
    """An unknown index is refused before the model is called."""
    world = World()
    with pytest.raises(NotFound, match="nowhere"):
        await world.events(turn(retrieval=Retrieval(("nowhere",), top=1)))
    assert world.generator.prompts == []


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.REPORT, '{"error": {"message": "no secret", "code": 400}}'),
        (Action.REDACT, '{"error":{"message":"no [REDACTED]","code":400}}'),
        (Action.BLOCK, f'{{"error":{{"message":"{WITHHELD}","type":"withheld"}}}}'),
    ],
)
async def test_a_model_servers_refusal_is_judged(action: Action, expected: str) -> None:
    """The refusal of a model server is judged as an answer, and its status stays."""
    refusal = UpstreamRejected("refused", status=400, body='{"error": {"message": "no secret", "code": 400}}')
    world = World(generator=FakeGenerator([refusal]))
    with pytest.raises(UpstreamRejected) as caught:
        await world.events(turn(detectors=Detectors(output=words(action))))
    assert (caught.value.status, caught.value.body) == (400, expected)


@pytest.mark.parametrize(
    ("detectors", "unary"), [(Detectors(), True), (Detectors(output=words(Action.REDACT)), False)]
)
async def test_a_complete_answer_is_requested_without_a_stream(detectors: Detectors, unary: bool) -> None:
    """A complete answer is requested without a stream unless output detectors judge it."""
    world = World()
    await world.events(turn(unary=True, detectors=detectors))
    assert [prompt.unary for prompt in world.generator.prompts] == [unary]


async def test_a_complete_answer_is_requested_with_the_redacted_messages() -> None:
    """A complete answer is requested with the redacted messages and the other members unchanged."""
    body = b'{"model":"m","stream":false,"messages":[{"role":"user","content":"a secret"}],"top_logprobs":1e400}'
    answer = b'{"id": "x", "choices": [{"index": 0, "message": {"content": "ok", "refusal": null}}]}'
    world = World(generator=FakeGenerator([[Completion(answer)]]))
    events = await world.events(
        turn(
            "a secret",
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            retrieval=Retrieval(),
            parameters_json=b'{"top_logprobs":1e400}',
            detectors=Detectors(
                input=words(Action.REDACT, requested=True), output=words(Action.REDACT, requested=True)
            ),
            original=OriginalRequest(json=body, in_one_piece=True),
        )
    )
    [prompt] = world.generator.prompts
    assert (prompt.in_one_piece, prompt.messages[-1].text) == (True, "a [REDACTED]")
    assert prompt.parameters_json == b'{"top_logprobs":1e400}'
    assert of_type(Completion, events) == [Completion(answer)]

"""The contract of models, which the fake, the extractive model, adapters and routes fulfil."""

import contextlib
import json
from collections.abc import Callable

import pytest
from causeway_testing.generator import FakeModel, FakeTokenCounter, deployed
from generator.domain import ChatMessage, Conversation, EventKind, OpenAIRequest, Source
from generator.extractive.model import ExtractiveModel
from generator.openai.model import OpenAIModel
from generator.ports import Model
from generator.routing.attempts import Target
from generator.routing.route import Route
from generator.triton.model import TritonModel

CONVERSATION = Conversation(
    (ChatMessage("system", "Answer from the sources."), ChatMessage("user", "How heavy may a pallet be?")),
    sources=(Source("freight.md", "A pallet may weigh up to 900 kg. Parcels are limited to 30 kg.", 1.0),),
    question="How heavy may a pallet be?",
)
MESSAGES = '"model":"public","messages":[{"role":"user","content":"Hi there"}]'


@pytest.fixture(params=["fake", "extractive", "openai", "triton", "route"])
def model(
    request: pytest.FixtureRequest,
    openai_model: Callable[..., OpenAIModel],
    triton_model: Callable[..., TritonModel],
) -> Model:
    if request.param == "openai":
        return openai_model(window=1000)
    if request.param == "triton":
        return triton_model()
    if request.param == "route":
        return Route("public", [Target(deployed(openai_model(window=1000)))], tokens=FakeTokenCounter())
    return FakeModel() if request.param == "fake" else ExtractiveModel()


async def test_a_conversation_is_answered_in_order(model: Model) -> None:
    """An answer starts, has text, ends each choice once, and has the usage last."""
    events = [event async for event in model.generate(CONVERSATION)]
    kinds = [event.kind for event in events]
    assert kinds[0] is EventKind.START
    assert json.loads(events[0].raw_json)["model"], "START must name the model"
    assert kinds.count(EventKind.START) == kinds.count(EventKind.FINISH) == kinds.count(EventKind.USAGE) == 1
    assert kinds[-2:] == [EventKind.FINISH, EventKind.USAGE]
    assert "".join(event.text for event in events if event.kind is EventKind.TEXT)
    assert events[-2].text == "stop"
    usage = events[-1].usage
    assert usage is not None
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0


async def test_a_request_of_the_openai_api_is_answered_in_its_format(model: Model) -> None:
    """A request gets one COMPLETION, or CHUNKs for a stream. Each is a JSON object with choices."""
    for stream, kind in ((False, EventKind.COMPLETION), (True, EventKind.CHUNK)):
        body = f'{{{MESSAGES},"stream":{json.dumps(stream)}}}'.encode()
        events = [event async for event in model.generate(OpenAIRequest(body))]
        assert {event.kind for event in events} == {kind}
        assert all("choices" in json.loads(event.raw_json) for event in events)
        assert (len(events) == 1) is not stream


async def test_an_answer_can_be_closed_early(model: Model) -> None:
    """An answer can be closed after any number of events, and the next one is complete."""
    for count in range(3):
        answer = model.generate(CONVERSATION)
        for _ in range(count):
            await anext(answer)
        await answer.aclose()
    assert [event async for event in model.generate(CONVERSATION)][-1].usage is not None


async def test_concurrent_answers_do_not_mix(model: Model) -> None:
    """Two concurrent answers do not mix."""
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(contextlib.aclosing(model.generate(CONVERSATION)))
        two = await stack.enter_async_context(contextlib.aclosing(model.generate(CONVERSATION)))
        pairs = [(event, await anext(two)) async for event in one]
    assert all(left == right for left, right in pairs)


async def test_a_model_describes_itself(model: Model) -> None:
    """A model has a name, an owner and a window, and is ready."""
    assert model.name
    assert model.owned_by
    assert model.only_quotes is isinstance(model, ExtractiveModel)
    assert await model.context_window() > 0
    assert await model.ready()


async def test_a_model_can_be_closed_twice(model: Model) -> None:
    """A model can be closed twice."""
    await model.aclose()
    await model.aclose()

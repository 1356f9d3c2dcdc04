"""The pipeline of the gateway and the guardrails service with slow detectors: back-pressure and cancellation."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.application import FakePictures
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.guardrails.fake import ScriptedJudge
from causeway_testing.servers import eventually, grpc_service
from detection.chunking.chunkers import Chunking
from detection.detectors.factory import ConfiguredDetector
from detection.domain import DetectorInfo, DetectorKind, Health
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from gateway.answering.pipeline import Pipeline
from gateway.clients.guardrails import GrpcGuardrails
from gateway.domain import (
    Action,
    Batch,
    Delta,
    Detector,
    Detectors,
    Event,
    Finish,
    Message,
    Passage,
    Retrieval,
    Start,
    Turn,
)
from gateway.ports.answering import Prompt
from guardrails.servicer import GuardrailsServicer
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL

MESSAGE = "Withheld."
SENTENCE = "All of this is very well said. "


class DetectorFactory:
    """A factory of one detector with the id ``judge``."""

    detector_id = "judge"

    def __init__(self, judge: ScriptedJudge) -> None:
        self._judge = judge

    def make(self, raw: bytes) -> ConfiguredDetector:
        return ConfiguredDetector(self._judge, "#", 0.0)

    def info(self) -> DetectorInfo:
        return DetectorInfo("judge", "", b"{}", streaming=True)

    async def health(self) -> Health:
        return Health(healthy=True)


class EndlessGenerator(FakeGenerator):
    """A model that never stops. It records the number of characters that were read, and whether it was stopped."""

    characters = 0

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        self.prompts.append(prompt)
        yield [Start(b"{}")]
        try:
            while True:
                self.characters += len(SENTENCE)
                yield [Delta(0, SENTENCE)]
                await asyncio.sleep(0)
        finally:
            self.closed += 1


@dataclass
class World:
    """The pipeline with a real guardrails service."""

    judge: ScriptedJudge
    pipeline: Pipeline
    generator: FakeGenerator
    events: list[Event] = field(default_factory=list)

    def turn(self, **members: Any) -> Turn:
        detectors = (Detector("judge", Action.BLOCK),)
        return Turn(
            LOCAL,
            "When?",
            (Message("user", "Hello."), Message("assistant", "Hello!")),
            retrieval=Retrieval(("docs",)),
            detectors=Detectors(output=detectors),
            blocked_message=MESSAGE,
            **members,
        )

    async def answer(self, turn: Turn) -> None:
        async with contextlib.aclosing(self.pipeline.answer(turn, Deadline.after(20))) as batches:
            async for batch in batches:
                self.events += batch

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta))


@contextlib.asynccontextmanager
async def world(judge: ScriptedJudge, generator: FakeGenerator) -> AsyncIterator[World]:
    workers = ThreadPool(1)
    servicer = GuardrailsServicer(Catalogue([DetectorFactory(judge)]), workers, JudgingLimits(100_000))
    service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]

    def add(server: Any) -> None:
        guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, server)

    passage = Passage("p", "docs", "d", "a.md", "a.md", "It is at noon.", 1.0)
    async with grpc_service(service, add) as channel:
        retriever = FakeRetriever({"docs": [passage]})
        yield World(judge, Pipeline(retriever, generator, GrpcGuardrails(channel), FakePictures()), generator)
    workers.close()


async def test_detectors_get_the_context_of_an_answer() -> None:
    """A detector receives the passages of the prompt, the question, the conversation, and the permitted headers."""
    judge = ScriptedJudge("secret", kind=DetectorKind.CONTEXT_DOC)
    async with world(judge, FakeGenerator.saying("At noon. ", "Yes.")) as it:
        await it.answer(it.turn(headers={"x-tenant": "harbour"}))
    assert it.text == "At noon. Yes."
    context = judge.context
    assert context is not None
    assert (context.passages, context.prompt) == (("It is at noon.",), "When?")
    assert b'"content":"Hello!"' in context.messages
    assert context.headers == {"x-tenant": "harbour"}


async def test_tool_calls_reach_detectors_of_conversations() -> None:
    """A detector of conversations receives the complete tool call, although the model sends it in pieces."""
    judge = ScriptedJudge("secret", kind=DetectorKind.CHAT, chunking=Chunking.WHOLE)
    calls = [b'{"tool_calls":[{"index":0,"function":{"arguments":"%b"}}]}' % piece for piece in (b"a", b"b")]
    script: list[Any] = [[Delta(0, "", call)] for call in calls]
    async with world(judge, FakeGenerator([*script, [Finish(0, "tool_calls")]])) as it:
        await it.answer(it.turn())
    assert judge.context is not None
    assert judge.context.replies == (b'{"tool_calls":[{"function":{"arguments":"ab"}}]}',)
    assert [event.delta_json for event in it.events if isinstance(event, Delta)] == calls


@pytest.mark.parametrize("chunking", list(Chunking))
async def test_a_slow_detector_slows_the_model(chunking: Chunking) -> None:
    """While a detector does not answer, the gateway reads no more from the model than its buffers hold, and
    releases no text.
    """
    judge, model = ScriptedJudge("secret", chunking=chunking), EndlessGenerator()
    judge.gate.clear()
    async with world(judge, model) as it:
        answering = asyncio.create_task(it.answer(it.turn()))
        await eventually(lambda: model.characters > 10_000)
        previous = -1
        while previous != model.characters and not answering.done():
            previous = model.characters
            await asyncio.sleep(0.3)
        if chunking is Chunking.WHOLE:
            # An endless text exceeds the text limit of the detector.
            await asyncio.wait_for(answering, 60)
            assert it.text == MESSAGE
        else:
            assert previous < 200_000
            assert it.text == ""
        answering.cancel()
        await asyncio.wait([answering])


async def test_a_client_that_disconnects_stops_the_model_and_the_detector() -> None:
    """When the client disconnects, the model is stopped and the call of the detector is cancelled."""
    judge, model = ScriptedJudge("secret"), EndlessGenerator()
    judge.gate.clear()
    async with world(judge, model) as it:
        answering = asyncio.create_task(it.answer(it.turn()))
        await eventually(lambda: bool(judge.calls))
        answering.cancel()
        await asyncio.wait([answering])
        assert model.closed == 1
        await eventually(lambda: judge.cancelled == 1)


async def test_a_block_stops_the_model() -> None:
    """The model is stopped before the client reads the end of a blocked answer."""
    judge, model = ScriptedJudge("well"), EndlessGenerator()
    async with (
        world(judge, model) as it,
        contextlib.aclosing(it.pipeline.answer(it.turn(), Deadline.after(20))) as batches,
    ):
        async for batch in batches:
            it.events += batch
            if Finish(0, "content_filter") in it.events:
                assert model.closed == 1
    assert it.text == MESSAGE


async def test_a_detector_that_times_out_releases_nothing() -> None:
    """The time limit of a detector does not include the time of the model. After the limit, ``on_error`` determines
    what happens.
    """
    judge = ScriptedJudge("secret", seconds=0.2)
    gate = asyncio.Event()
    generator = FakeGenerator.saying("First sentence here. ", "Second sentence here. ", "And so on.")
    generator.gate = gate
    async with world(judge, generator) as it:
        answering = asyncio.create_task(it.answer(it.turn()))
        await asyncio.sleep(0.5)  # the model's time
        assert not answering.done()
        judge.gate.clear()
        gate.set()
        await asyncio.wait_for(answering, 60)
    assert it.text == MESSAGE

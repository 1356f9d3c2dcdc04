"""The contract of the port: on the fake, on the adapter with a real server over that fake, and in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from causeway_testing.gateway.answering import FakeGuardrails
from causeway_testing.servers import eventually, grpc_service
from detection import domain as judging
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.matching import Limits, Matcher, Pattern
from detection.moderation.rules import Rule
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from gateway.answering.guard import OutputGuard
from gateway.clients.guardrails import DESCRIPTOR, GrpcGuardrails
from gateway.clients.local_detectors import LocalDetectors
from gateway.clients.local_guardrails import LocalGuardrails
from gateway.clients.shared_detectors import SharedDetectors
from gateway.domain import (
    Action,
    Batch,
    Chunking,
    Delta,
    DetectionContext,
    Detector,
    DetectorFailure,
    Detectors,
    Direction,
    Event,
    Finding,
    Finish,
    Policy,
    Verdict,
)
from gateway.ports.answering import Clearance, Guardrails
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, NotFound, Unavailable
from servicekit.principal import LOCAL, Principal

_DIRECTIONS = {
    pb.DIRECTION_INPUT: Direction.INPUT,
    pb.DIRECTION_CONTEXT: Direction.CONTEXT,
    pb.DIRECTION_OUTPUT: Direction.OUTPUT,
}


class Servicer(guardrails_pb2_grpc.GuardrailsServiceServicer):
    """The guardrails' service over the fake, which ends a call after a block."""

    def __init__(self, fake: FakeGuardrails) -> None:
        self._fake = fake
        self.directions: list[Direction] = []
        self.detectors: list[Detector] = []
        self.auxiliary: list[bool] = []
        self.chunking: tuple[int, bool] | None = None
        self.failures: list[pb.DetectorFailure] = []
        self.failure: CausewayError | None = None
        self.ended = 0
        self.policy = pb.GetPolicyResponse()
        self.surroundings: list[pb.Surroundings] = []
        self.replies: list[bytes] = []

    async def GetPolicy(self, request: pb.GetPolicyRequest, context: Any) -> pb.GetPolicyResponse:  # noqa: N802  # the contract's name
        Principal.from_proto(request.principal)
        return self.policy

    async def DetectText(self, request: pb.DetectTextRequest, context: Any) -> pb.DetectTextResponse:  # noqa: N802  # the contract's name
        self.directions.append(_DIRECTIONS[request.direction])
        self.detectors = _detectors(request.detectors)
        self.auxiliary.append(request.beside)
        self.surroundings.append(request.surroundings)
        verdicts, _ = await self._fake.detect(
            Principal.from_proto(request.principal),
            _DIRECTIONS[request.direction],
            self.detectors,
            request.texts,
            Deadline.of(context),
        )
        return pb.DetectTextResponse(verdicts=[_verdict(verdict) for verdict in verdicts], failures=self.failures)

    async def Detect(  # noqa: N802  # the contract's name
        self, request_iterator: AsyncIterator[pb.DetectRequest], context: Any
    ) -> AsyncGenerator[pb.DetectResponse, None]:
        try:
            config = (await anext(aiter(request_iterator))).config
            self.directions.append(_DIRECTIONS[config.direction])
            self.chunking = config.chunking, config.all_hold
            self.detectors = _detectors(config.detectors)
            self.surroundings.append(config.surroundings)
            principal = Principal.from_proto(config.principal)
            async with (
                self._fake.watch(principal, self.detectors, Deadline.of(context)) as watch,
                aclosing(watch.clearances()) as clearances,
            ):
                async for request in request_iterator:
                    if self.failure is not None:
                        raise self.failure
                    piece = request.piece
                    self.auxiliary.append(piece.beside)
                    self.replies += [piece.reply_json] if piece.reply_json else []
                    await watch.feed(piece.choice, piece.text, last=piece.last)
                    clearance = await anext(clearances)
                    yield _response(clearance, self.failures)
                    if clearance.blocked:
                        return
        finally:
            self.ended += 1


def _detectors(configs: Sequence[pb.DetectorConfig]) -> list[Detector]:
    return [
        Detector(
            config.detector_id, Action(config.action), config.on_error == pb.ON_ERROR_ALLOW, config.params_json
        )
        for config in configs
    ]


def _verdict(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(
        action=verdict.action.value if verdict.action else pb.ACTION_UNSPECIFIED,  # type: ignore[arg-type]  # the same numbers
        findings=[_finding(finding) for finding in verdict.findings],
        redacted_text=verdict.redacted_text,
    )


def _finding(finding: Finding) -> pb.Finding:
    return pb.Finding(
        start=finding.start,
        end=finding.end,
        text=finding.text,
        detection_type=finding.detection_type,
        detection=finding.detection,
        detector_id=finding.detector_id,
        score=finding.score,
        action=finding.action.value,  # type: ignore[arg-type]  # the same numbers
        replacement=finding.replacement,
        extra_json=finding.extra_json,
    )


def _response(clearance: Clearance, failures: Sequence[pb.DetectorFailure]) -> pb.DetectResponse:
    return pb.DetectResponse(
        choice=clearance.choice,
        cleared_until=clearance.cleared_until,
        findings=[_finding(finding) for finding in clearance.findings],
        action=pb.ACTION_BLOCK if clearance.blocked else pb.ACTION_UNSPECIFIED,
        failures=failures,
        judged=clearance.fully_judged,
    )


@pytest.fixture
def fake() -> FakeGuardrails:
    return FakeGuardrails()


@pytest.fixture
def servicer(fake: FakeGuardrails) -> Servicer:
    return Servicer(fake)  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def adapter(servicer: Servicer) -> AsyncIterator[GrpcGuardrails]:
    def add(server: Any) -> None:
        guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        yield GrpcGuardrails(channel)


class WordDetectors(SharedDetectors):
    """The detector of the fake, ready in this process."""

    def __init__(self, service: GrpcGuardrails, workers: ThreadPool) -> None:
        super().__init__(service, workers)
        self._threads = workers

    def ready(self, detectors: Sequence[Detector]) -> LocalDetectors | None:
        if any(detector.detector_id != "words" for detector in detectors):
            return None
        found = PatternDetector([Matcher(Pattern("word", "secret", "secret"))], Limits())
        rules = [
            Rule(
                detector.detector_id,
                found,
                judging.Action[detector.action.name],
                judging.OnError.BLOCK,
                "[REDACTED]",
            )
            for detector in detectors
        ]
        return LocalDetectors(rules, JudgingLimits(), 4096, self._threads)


@pytest.fixture
def local(adapter: GrpcGuardrails) -> Iterator[LocalGuardrails]:
    workers = ThreadPool(1)
    yield LocalGuardrails(adapter, WordDetectors(adapter, workers))
    workers.close()


@pytest.fixture(params=["fake", "grpc", "local"])
def guardrails(
    request: pytest.FixtureRequest, fake: FakeGuardrails, adapter: GrpcGuardrails, local: LocalGuardrails
) -> Guardrails:
    judges: dict[str, Guardrails] = {"fake": fake, "grpc": adapter, "local": local}
    return judges[request.param]


@pytest.fixture(params=["grpc", "local"])
def real(request: pytest.FixtureRequest, adapter: GrpcGuardrails, local: LocalGuardrails) -> Guardrails:
    return adapter if request.param == "grpc" else local


def words(action: Action) -> list[Detector]:
    return [Detector("words", action)]


def soon() -> Deadline:
    return Deadline.after(120)


async def test_a_verdict_for_each_text(guardrails: Guardrails) -> None:
    """Each text gets a verdict, in order. A clean text has no action and no findings."""
    verdicts, failures = await guardrails.detect(
        LOCAL, Direction.INPUT, words(Action.REDACT), ["clean", "\U0001f600 a secret"], soon()
    )
    assert failures == ()
    clean, found = verdicts
    assert (clean.action, clean.findings) == (None, ())
    assert found.action is Action.REDACT
    assert found.redacted_text == "\U0001f600 a [REDACTED]"
    assert found.findings == (
        Finding("words", "word", "secret", 1.0, Action.REDACT, 4, 10, "secret", "[REDACTED]"),
    )


async def test_an_unknown_detector_is_refused(guardrails: Guardrails) -> None:
    """An unknown detector is refused, and the refusal names it."""
    with pytest.raises(NotFound, match="smells"):
        await guardrails.detect(LOCAL, Direction.INPUT, [Detector("smells", Action.BLOCK)], ["x"], soon())


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("auxiliary", [True, False])
async def test_every_member_of_a_call_arrives(
    adapter: GrpcGuardrails, servicer: Servicer, direction: Direction, auxiliary: bool
) -> None:
    """The direction, the detectors with all their members, and `auxiliary` arrive, and failures are returned."""
    detectors = [Detector("words", Action.BLOCK, True, b'{"x":1.0}'), Detector("words", Action.REPORT)]
    servicer.failures = [pb.DetectorFailure(detector_id="d", message="late", status=504, not_asked=True)]
    _, failures = await adapter.detect(LOCAL, direction, detectors, ["x"], soon(), auxiliary=auxiliary)
    assert servicer.detectors == detectors
    assert (servicer.directions, servicer.auxiliary) == ([direction], [auxiliary])
    assert failures == (DetectorFailure("d", "late", 504, not_asked=True),)


async def model(*batches: Batch) -> AsyncGenerator[Batch, None]:
    for batch in batches:
        yield batch
        await asyncio.sleep(0)


async def guarded(guardrails: Guardrails, action: Action, *batches: Batch) -> list[Event]:
    events: list[Event] = []
    async with (
        guardrails.watch(LOCAL, words(action), soon()) as watch,
        aclosing(OutputGuard(model(*batches), watch, "Withheld.").events()) as out,
    ):
        async for batch in out:
            events += batch
    return events


def text_of(events: Sequence[Event], choice: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta) and event.choice == choice)


PIECES: list[Batch] = [
    [Delta(0, "the s")],
    [Delta(0, "ec"), Delta(1, "ok")],
    [Delta(0, "ret is"), Delta(0, " out")],
]
FINISHES = [Finish(0, "stop"), Finish(1, "stop")]


@pytest.mark.parametrize("finishes", [FINISHES, []])
async def test_a_growing_text_is_redacted(guardrails: Guardrails, finishes: list[Event]) -> None:
    """A word is redacted however it is split, with and without a finish event. Other choices are separate."""
    events = await guarded(guardrails, Action.REDACT, *PIECES, finishes)
    assert text_of(events) == "the [REDACTED] is out"
    assert text_of(events, 1) == "ok"
    assert [event for event in events if isinstance(event, Finish)] == finishes


async def test_a_growing_text_is_blocked(guardrails: Guardrails) -> None:
    """A blocked stream ends with the block message, even if the model still sends text."""
    more: list[Batch] = [[Delta(0, "x" * 5000)] for _ in range(20)]
    events = await guarded(guardrails, Action.BLOCK, *PIECES, *more, FINISHES)
    assert text_of(events) == "the Withheld."
    assert [event for event in events if isinstance(event, Finish)] == [
        Finish(0, "content_filter"),
        Finish(1, "content_filter"),
    ]


async def test_a_long_answer_is_judged_to_its_end(guardrails: Guardrails) -> None:
    """The detectors judge a long answer to its end, and clear all its pieces."""
    pieces: list[Batch] = [[Delta(0, f"word{number} ")] for number in range(500)]
    end: list[Batch] = [[Delta(0, "the secret")], [Finish(0, "stop")]]
    events = await asyncio.wait_for(guarded(guardrails, Action.REDACT, *pieces, *end), 60)
    assert text_of(events) == "".join(f"word{number} " for number in range(500)) + "the [REDACTED]"


async def test_an_unknown_detector_ends_the_watch(real: Guardrails) -> None:
    """An unknown detector ends the watch with the error of the service."""
    for _ in range(20):
        with pytest.raises(NotFound, match="unknown"):
            await watch_unknown_detector(real)


async def watch_unknown_detector(guardrails: Guardrails) -> None:
    async with guardrails.watch(LOCAL, [Detector("unknown", Action.BLOCK)], soon()) as watch:
        batches: list[Batch] = [[Delta(0, "a" * 2000)] for _ in range(50)]
        async with aclosing(OutputGuard(model(*batches), watch, "").events()) as out:
            async for _ in out:
                pytest.fail("the guard cleared text")


@pytest.mark.parametrize("error", [Unavailable("gone"), InvalidRequest("a piece too many")])
async def test_a_failure_of_the_service_is_raised(
    adapter: GrpcGuardrails, servicer: Servicer, error: CausewayError
) -> None:
    """A failure of the service during a stream is raised with its message."""
    servicer.failure = error
    with pytest.raises(type(error), match=error.message):
        await guarded(adapter, Action.REPORT, *PIECES, FINISHES)


async def test_a_clearance_has_the_failures_of_detectors(adapter: GrpcGuardrails, servicer: Servicer) -> None:
    """A clearance contains the failures of detectors."""
    servicer.failures = [pb.DetectorFailure(detector_id="d", message="late")]
    async with adapter.watch(LOCAL, words(Action.REPORT), soon()) as watch:
        await watch.feed(3, "ab", last=True)
        async with aclosing(watch.clearances()) as clearances:
            clearance = await anext(clearances)
    assert clearance == Clearance(3, 2, (), False, (DetectorFailure("d", "late"),), fully_judged=True)


@pytest.mark.parametrize("has_policy", [True, False])
async def test_the_policy_of_the_service_is_read(real: Guardrails, servicer: Servicer, has_policy: bool) -> None:
    """The service's policy is read, and an unknown action becomes a block.

    A service without a policy file has no policy.
    """
    servicer.policy = pb.GetPolicyResponse(
        output=[
            pb.DetectorConfig(detector_id="a", action=pb.ACTION_REDACT, on_error=pb.ON_ERROR_ALLOW),
            pb.DetectorConfig(detector_id="b", params_json=b'{"x":1}'),
            pb.DetectorConfig(detector_id="c", action=9),  # type: ignore[arg-type]  # on purpose
        ]
        if has_policy
        else [],
        block_message="No." if has_policy else "",
    )
    found = await real.policy(soon())
    detectors = (
        Detector("a", Action.REDACT, True),
        Detector("b", Action.REPORT, False, b'{"x":1}'),
        Detector("c", Action.BLOCK),
    )
    assert found == (Policy(Detectors(output=detectors), "No.") if has_policy else None)


async def test_the_context_of_the_texts_arrives(adapter: GrpcGuardrails, servicer: Servicer) -> None:
    """The context of the texts arrives with both calls. The reply arrives with its last piece."""
    context = DetectionContext(("p",), True, "why", b"[]", b"[1]", {"x-tenant": "t"})
    await adapter.detect(LOCAL, Direction.OUTPUT, words(Action.REPORT), ["x"], soon(), context)
    async with adapter.watch(LOCAL, words(Action.REPORT), soon(), context) as watch:
        await watch.feed(0, "a", last=True, reply_json=b'{"tool_calls":[]}')
        async with aclosing(watch.clearances()) as clearances:
            assert (await anext(clearances)).fully_judged
    sent = pb.Surroundings(
        passages=["p"],
        passages_are_urls=True,
        prompt="why",
        messages_json=b"[]",
        tools_json=b"[1]",
        headers={"x-tenant": "t"},
    )
    assert servicer.surroundings == [sent, sent]
    assert servicer.replies == [b'{"tool_calls":[]}']


@pytest.mark.parametrize(
    ("chunking", "sent"),
    [
        (None, (pb.CHUNKING_MINIMAL, False)),
        (Chunking.MINIMAL, (pb.CHUNKING_MINIMAL, True)),
        (Chunking.SENTENCE, (pb.CHUNKING_SENTENCE, True)),
    ],
)
async def test_the_options_of_a_watch_arrive(
    adapter: GrpcGuardrails, servicer: Servicer, chunking: Chunking | None, sent: tuple[int, bool]
) -> None:
    """The direction and the chunking of a watch arrive, and `auxiliary` arrives with each piece."""
    async with adapter.watch(LOCAL, words(Action.REPORT), soon(), chunking=chunking) as watch:
        await watch.feed(0, "a", auxiliary=True)
        await watch.feed(0, "b", last=True)
        async with aclosing(watch.clearances()) as clearances:
            while not (await anext(clearances)).fully_judged:
                pass
    assert (servicer.directions, servicer.chunking) == ([Direction.OUTPUT], sent)
    assert servicer.auxiliary == [True, False]


async def test_the_end_may_be_sent_twice(guardrails: Guardrails) -> None:
    """The end may be sent twice, even after the service has ended the call."""
    async with guardrails.watch(LOCAL, words(Action.BLOCK), soon()) as watch:
        clearances_of_feed = await watch.feed(0, "secret")
        async with aclosing(watch.clearances()) as clearances:
            assert (clearances_of_feed[0] if clearances_of_feed else await anext(clearances)).blocked
            await watch.feed(0, "more")
            await watch.end()
            await watch.end()


async def test_leaving_the_watch_ends_the_call(adapter: GrpcGuardrails, servicer: Servicer) -> None:
    """The call ends when the client leaves the watch before the end of the text."""
    async with adapter.watch(LOCAL, words(Action.REPORT), soon()) as watch:
        await watch.feed(0, "a")
        async with aclosing(watch.clearances()) as clearances:
            await anext(clearances)
    await eventually(lambda: servicer.ended == 1)


async def test_a_watch_ends_at_its_deadline(real: Guardrails) -> None:
    """A watch ends at its deadline if the model is silent while its text is held back."""

    async def endless() -> AsyncGenerator[Batch, None]:
        yield [Delta(0, "sec")]
        await asyncio.Event().wait()

    async with (
        real.watch(LOCAL, words(Action.BLOCK), Deadline.after(0.3)) as watch,
        aclosing(OutputGuard(endless(), watch, "").events()) as out,
    ):
        with pytest.raises(DeadlineExceeded):
            await anext(out)

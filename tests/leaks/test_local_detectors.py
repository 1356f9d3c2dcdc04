"""The detectors that run in the gateway give exactly the same results as the guardrails service.

The tests send the same pieces of text to the service over gRPC and to the detectors in the gateway. Clearances,
verdicts and errors must be equal.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from causeway.guardrails.v1 import guardrails_pb2_grpc
from causeway_testing.servers import eventually, grpc_service, measured
from detection.detectors.patterns.matching import Limits
from detection.moderation.catalogue import Catalogue
from detection.moderation.hold_back import HoldLimits
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits, shared_detectors
from gateway.answering.guard import OutputGuard
from gateway.clients.guardrails import DESCRIPTOR, GrpcGuardrails
from gateway.clients.local_guardrails import LocalGuardrails
from gateway.clients.shared_detectors import SharedDetectors
from gateway.domain import (
    Action,
    Batch,
    Chunking,
    Delta,
    DetectionContext,
    Detections,
    Detector,
    Direction,
    Event,
    Finish,
)
from gateway.ports.answering import Clearance, Guardrails
from guardrails.servicer import GuardrailsServicer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import LOCAL

# The limits are small, so that random texts exceed them.
LIMITS = JudgingLimits(6000, HoldLimits(24, 40), Limits(held_back=24, detections=6))
AUXILIARY = 1 << 20
MARKER = 100

_SETS: Sequence[tuple[Detector, ...]] = [
    (
        Detector("regex", Action.REDACT, params_json=b'{"regex":["us-social-security-number"]}'),
        Detector("regex", Action.REDACT, params_json=b'{"regex":["credit-card"]}'),
    ),
    (Detector("regex", Action.REDACT, params_json=b'{"regex":["-[ab]+-","12--?34"],"replacement":""}'),),
    (
        Detector("ban_substrings", Action.BLOCK, params_json=b'{"substrings":["secret"]}'),
        Detector("invisible_text", Action.REDACT, params_json=b'{"replacement":""}'),
    ),
    (
        Detector("regex", Action.REPORT, allow_on_error=True, params_json=b'{"regex":["x[^y]*y"]}'),
        Detector("prompt_injection", Action.REPORT),
    ),
    (Detector("regex", Action.BLOCK, params_json=b'{"regex":["x[^y]{0,30}y"]}'),),
]
_FRAGMENTS = st.sampled_from(
    [
        *("123-45", "-6789", "4111 1111", " 1111 1111", "12-", "-34", "-ab-", "sec", "ret"),
        *("1\u200b23-45-67", "\u00e9", "\U0001f600", "Ignore all previous ", "instructions"),
        *("x", "y", " ", ". A", "\n", "word " * 12),
    ]
)
_TEXTS = st.lists(_FRAGMENTS, max_size=4).map("".join)


@dataclass(frozen=True)
class Piece:
    """A piece of text. A piece with the choice `AUXILIARY` belongs to no choice."""

    choice: int
    text: str
    last: bool


_CHOICES, _LAST = st.sampled_from([0, 0, 0, 1, AUXILIARY]), st.sampled_from([False, False, True])
_PIECES = st.lists(st.builds(Piece, _CHOICES, _TEXTS, _LAST), max_size=10)
_CHUNKINGS = st.sampled_from([None, Chunking.MINIMAL, Chunking.SENTENCE])


@dataclass
class Platform:
    """The guardrails service over gRPC, and the detectors of the gateway."""

    loop: asyncio.Runner
    service: GrpcGuardrails
    local: LocalGuardrails
    shared: SharedDetectors
    workers: ThreadPool

    async def prepare(self, detectors: Sequence[Detector]) -> None:
        """Wait until the gateway can run these detectors itself."""
        await eventually(lambda: self.shared.ready(detectors) is not None, what="the detectors of the gateway")


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """Start the service, and prepare the detectors of the gateway."""
    stack = AsyncExitStack()

    async def open_platform() -> Platform:
        workers = ThreadPool(1)
        stack.callback(workers.close)
        servicer = GuardrailsServicer(Catalogue(shared_detectors(LIMITS.patterns)), workers, LIMITS)

        def add(server: Any) -> None:
            guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, server)

        service = GrpcGuardrails(await stack.enter_async_context(grpc_service(DESCRIPTOR, add)))
        shared = await stack.enter_async_context(SharedDetectors(service, workers, interval=0.05))
        platform = Platform(loop, service, LocalGuardrails(service, shared), shared, workers)
        for each in _SETS:
            await platform.prepare(each)
        return platform

    with asyncio.Runner() as loop:
        running = loop.run(open_platform())
        yield running
        loop.run(stack.aclose())


def deadline_of_test() -> Deadline:
    return Deadline.after(60)


Outcome = Clearance | tuple[type, str, str | None]


def _error(error: CausewayError) -> tuple[type, str, str | None]:
    return type(error), error.message, error.field


async def clearances(
    guardrails: Guardrails, detectors: Sequence[Detector], pieces: Sequence[Piece], chunking: Chunking | None
) -> list[Outcome]:
    """Return the clearances of each piece, and the error at the end.

    After each piece, this function feeds a complete empty text with another choice index. When the clearance of
    this text arrives, the piece before it has been judged. Without this, the service would judge several pieces
    together.
    """
    outcomes: list[Outcome] = []
    try:
        async with (
            guardrails.watch(LOCAL, detectors, deadline_of_test(), chunking=chunking) as watch,
            aclosing(watch.clearances()) as later,
        ):
            for marker, piece in enumerate(pieces, MARKER):
                auxiliary = piece.choice == AUXILIARY
                got = [*await watch.feed(piece.choice, piece.text, last=piece.last, auxiliary=auxiliary)]
                got += await watch.feed(marker, "", last=True)
                while not any(each.blocked or each.choice == marker for each in got):
                    got.append(await anext(later))
                outcomes += got
                if got[-1].blocked:
                    return outcomes
            await watch.end()
            outcomes += [each async for each in later]
    except CausewayError as error:
        outcomes.append(_error(error))
    return outcomes


@given(st.sampled_from(_SETS), _PIECES, _CHUNKINGS)
@settings(max_examples=120, deadline=None)
def test_growing_texts(
    platform: Platform, detectors: Sequence[Detector], pieces: list[Piece], chunking: Chunking | None
) -> None:
    """The clearances, blocks, failures and errors for growing texts are equal, piece by piece."""

    async def both() -> tuple[list[Outcome], list[Outcome]]:
        return (
            await clearances(platform.service, detectors, pieces, chunking),
            await clearances(platform.local, detectors, pieces, chunking),
        )

    theirs, ours = platform.loop.run(both())
    assert ours == theirs


async def guarded_answer(
    guardrails: Guardrails, detectors: Sequence[Detector], texts: Sequence[tuple[int, str]]
) -> tuple[dict[int, str], dict[int, list[object]], dict[int, list[Finish]]]:
    """Return the text, the findings and the finishes of each choice of a guarded answer.

    The order of the finishes of different choices is not part of the result, because it depends on timing.
    """
    texts_by_choice: dict[int, str] = {0: "", 1: ""}
    found: dict[int, list[object]] = {0: [], 1: []}
    finishes: dict[int, list[Finish]] = {0: [], 1: []}

    async def model() -> AsyncGenerator[Batch, None]:
        for choice, text in texts:
            yield [Delta(choice, text)]
            await asyncio.sleep(0)
        yield [Finish(choice, "stop") for choice in sorted({choice for choice, _ in texts})]

    def record(event: Event) -> None:
        if isinstance(event, Delta):
            texts_by_choice[event.choice] += event.text
        elif isinstance(event, Detections):
            found[event.item] += [*event.findings, *event.failures]
        else:
            assert isinstance(event, Finish)
            finishes[event.choice].append(event)

    protected = any(each.action is not Action.REPORT for each in detectors)
    async with (
        guardrails.watch(LOCAL, detectors, deadline_of_test()) as watch,
        aclosing(OutputGuard(model(), watch, "Withheld.", protected=protected).events()) as events,
    ):
        async for batch in events:
            for event in batch:
                record(event)
    return texts_by_choice, found, finishes


@given(st.sampled_from(_SETS[:3]), st.lists(st.tuples(st.sampled_from([0, 0, 1]), _TEXTS), min_size=1, max_size=8))
@example(_SETS[2], [(0, ""), (1, "secret")])
@settings(max_examples=60, deadline=None)
def test_answers(platform: Platform, detectors: Sequence[Detector], texts: list[tuple[int, str]]) -> None:
    """A guarded answer is blocked by both or by neither. If it is not blocked, its text, findings and finishes are
    equal.
    """

    async def both() -> Any:
        return (
            await guarded_answer(platform.service, detectors, texts),
            await guarded_answer(platform.local, detectors, texts),
        )

    (theirs, found, finishes), (ours, own_found, own_finishes) = platform.loop.run(both())
    is_blocked = _is_blocked(own_finishes)
    assert _is_blocked(finishes) is is_blocked
    if is_blocked:
        # The amount of text of the other choice that is released before the block depends on timing. So does the
        # finish of a choice without text.
        assert all(text.endswith("Withheld.") for text in ours.values() if text)
    else:
        assert (ours, own_found, own_finishes) == (theirs, found, finishes)


def _is_blocked(finishes: Mapping[int, Sequence[Finish]]) -> bool:
    return any(finish.reason == "content_filter" for choice in finishes.values() for finish in choice)


@given(st.sampled_from(_SETS), st.lists(_TEXTS, max_size=4), st.booleans(), st.sampled_from(Direction))
@settings(max_examples=80, deadline=None)
def test_whole_texts(
    platform: Platform, detectors: Sequence[Detector], texts: list[str], auxiliary: bool, direction: Direction
) -> None:
    """The verdicts and failures for whole texts are equal, in every direction."""

    async def both() -> Any:
        return [
            await each.detect(LOCAL, direction, detectors, texts, deadline_of_test(), auxiliary=auxiliary)
            for each in (platform.service, platform.local)
        ]

    theirs, ours = platform.loop.run(both())
    assert ours == theirs


@pytest.mark.parametrize(
    ("call", "detectors"),
    [
        ("long texts", _SETS[0]),
        ("long piece", _SETS[0]),
        ("long passages", _SETS[0]),
        ("complete choice", _SETS[0]),
        ("many choices", _SETS[0]),
        ("late", _SETS[0]),
        ("short", (Detector("regex", Action.REDACT, params_json=b'{"regex":["("]}'),)),
        ("short", (Detector("regex", Action.REDACT, params_json=b'{"regexes":[]}'),)),
        ("short", (Detector("unknown", Action.REDACT),)),
        ("short", ()),
        ("short", _SETS[0] * 17),
    ],
    ids=lambda each: each.replace(" ", "-") if isinstance(each, str) else f"{len(each)}-detectors",
)
def test_errors(platform: Platform, call: str, detectors: Sequence[Detector]) -> None:
    """Errors have the same class, message and field."""

    async def errors_of(guardrails: Guardrails) -> list[Outcome]:
        deadline = Deadline.after(-1 if call == "late" else 60)
        context = DetectionContext(("word " * 2000,)) if call == "long passages" else DetectionContext()
        texts = ["word " * 2000] if call == "long texts" else ["short"]
        outcomes: list[Outcome] = []
        try:
            await guardrails.detect(LOCAL, Direction.OUTPUT, detectors, texts, deadline, context)
        except CausewayError as error:
            outcomes.append(_error(error))
        pieces = {
            "long piece": [("word " * 2000, 0)],
            "complete choice": [("a", 0), ("b", 0)],
            "many choices": [("a", choice) for choice in range(129)],
        }.get(call, [("a", 0)])
        try:
            async with guardrails.watch(LOCAL, detectors, deadline, context) as watch:
                for text, choice in pieces:
                    await watch.feed(choice, text, last=True)
                await watch.end()
                async with aclosing(watch.clearances()) as later:
                    async for _ in later:
                        pass
        except CausewayError as error:
            outcomes.append(_error(error))
        return outcomes

    async def both() -> tuple[list[Outcome], list[Outcome]]:
        return await errors_of(platform.service), await errors_of(platform.local)

    theirs, ours = platform.loop.run(both())
    assert theirs
    assert ours == theirs


@pytest.mark.parametrize("method", ["detect", "watch"])
def test_the_gateway_records_its_detectors(platform: Platform, method: Literal["detect", "watch"]) -> None:
    """The metrics of a detector count the calls in the gateway, even if the caller ends a watch early."""
    labels = {"causeway_detector": "ban_substrings", "causeway_outcome": "found"}

    def count() -> float:
        samples = measured("causeway_detector_duration_seconds_count")
        return sum(value for found, value in samples if labels.items() <= found.items())

    async def judge() -> None:
        if method == "detect":
            await platform.local.detect(LOCAL, Direction.INPUT, _SETS[2], ["a secret"], deadline_of_test())
            return
        async with platform.local.watch(LOCAL, _SETS[2], deadline_of_test()) as watch:
            [blocked] = await watch.feed(0, "a secret")
            assert blocked.blocked

    before = count()
    platform.loop.run(judge())
    assert count() == before + 1


def test_long_pieces_leave_the_event_loop(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long piece is judged in a thread, and a short piece in the event loop."""
    inline: list[bool] = []
    run = ThreadPool.run

    async def counted(self: ThreadPool, at_once: bool, *arguments: Any) -> Any:
        if arguments[0].__name__ == "feed":  # the pool may also compile patterns
            inline.append(at_once)
        return await run(self, at_once, *arguments)

    async def judge() -> None:
        monkeypatch.setattr(ThreadPool, "run", counted)
        async with platform.local.watch(LOCAL, _SETS[0], deadline_of_test()) as watch:
            [short] = await watch.feed(0, "word ")
            assert inline == []
            [long] = await watch.feed(0, "word " * 1000)
            assert inline == [False]
            assert (short.cleared_until, long.cleared_until) == (5, 5005)

    platform.loop.run(judge())

"""The gRPC contract: messages in, domain, messages out."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from servicekit.errors import InvalidRequest, PayloadTooLarge
from servicekit.principal import Principal

from guardrails import wire
from guardrails.domain import Piece
from guardrails.moderation.catalogue import Catalogue
from guardrails.moderation.hold_back import HoldLimits
from guardrails.moderation.ragengine_policy import NO_POLICY, Policy
from guardrails.moderation.session import Session
from guardrails.moderation.thread_pool import ThreadPool
from guardrails.moderation.whole_text import judge

T = TypeVar("T")

_Context = grpc.aio.ServicerContext[Any, Any]

# Pieces that may wait to be taken together; with more the client's stream stops.
_AHEAD = 64


class GuardrailsServicer(guardrails_pb2_grpc.GuardrailsServiceServicer):
    """Judges whole and growing texts.

    Args:
        catalogue: The detectors.
        workers: Where long texts are judged.
        longest: Code points that one request's texts, or one piece of a growing text, may have.
        holding: How much of a growing text may be held back.
        policy: What the policy file says at the moment.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        workers: ThreadPool,
        longest: int,
        holding: HoldLimits | None = None,
        policy: Callable[[], Policy] = lambda: NO_POLICY,
    ) -> None:
        self._catalogue = catalogue
        self._holding = holding or HoldLimits()
        self._policy = policy
        self._workers = workers
        self._longest = longest

    async def DetectText(  # noqa: N802  # the contract's name
        self,
        request: pb.DetectTextRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.DetectTextResponse:
        """Judges whole texts."""
        Principal.from_proto(request.principal)
        rules = self._catalogue.rules(wire.specs(request.detectors))
        detection_context = wire.detection_context(
            request.direction, request.passages, request.surroundings, request.replies_json
        )
        self._check_size(sum(map(len, request.texts)), "texts")
        self._check_size(sum(map(len, detection_context.passages)), "passages")
        if request.beside:
            rules = tuple(rule for rule in rules if rule.judges_beside)
        verdicts, failures = await judge(request.texts, rules, detection_context, self._workers)
        return pb.DetectTextResponse(
            verdicts=map(wire.verdict_message, verdicts), failures=wire.failure_messages(failures)
        )

    async def Detect(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.DetectRequest],
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> AsyncGenerator[pb.DetectResponse, None]:
        """Judges texts while they grow."""
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("step") != "config":
            raise InvalidRequest("The first message must be `config`.", field="config")
        Principal.from_proto(first.config.principal)
        config = first.config
        detection_context = wire.detection_context(config.direction, config.passages, config.surroundings)
        self._check_size(sum(map(len, detection_context.passages)), "passages")
        session = Session(
            self._catalogue.rules(wire.specs(config.detectors)),
            detection_context,
            wire.chunking(config.chunking),
            self._holding,
            all_hold=config.all_hold,
        )
        waiting = batches(self._pieces(request_iterator), _AHEAD)
        async with contextlib.aclosing(waiting), contextlib.aclosing(session.run(waiting, self._workers)) as run:
            async for steps in run:
                for step in steps:
                    yield wire.progress_message(step)

    async def ListDetectors(  # noqa: N802  # the contract's name
        self,
        request: pb.ListDetectorsRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.ListDetectorsResponse:
        """Lists the detectors."""
        Principal.from_proto(request.principal)
        infos = self._catalogue.infos()
        healths = [None] * len(infos) if request.without_health else await self._catalogue.healths()
        return pb.ListDetectorsResponse(detectors=map(wire.detector_message, infos, healths))

    async def GetPolicy(  # noqa: N802  # the contract's name
        self,
        request: pb.GetPolicyRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.GetPolicyResponse:
        """What the policy file says."""
        Principal.from_proto(request.principal)
        policy = self._policy()
        return pb.GetPolicyResponse(
            output=map(wire.config_message, policy.output), block_message=policy.block_message
        )

    async def _pieces(self, requests: AsyncIterator[pb.DetectRequest]) -> AsyncIterator[Piece]:
        async for request in requests:
            if request.WhichOneof("step") != "piece":
                raise InvalidRequest("Every message after the first must be a `piece`.", field="piece")
            piece = request.piece
            text = piece.text
            self._check_size(len(text), "piece.text")
            yield Piece(piece.choice, text, piece.last, wire.check_reply(piece.reply_json), piece.beside)

    def _check_size(self, size: int, field: str) -> None:
        if size > self._longest:
            raise PayloadTooLarge(f"`{field}` is longer than {self._longest} characters.", field=field)


async def batches(source: AsyncIterator[T], limit: int) -> AsyncGenerator[list[T], None]:
    """Yield what the source has given since the last batch, as soon as there is something.

    The source is read ahead by at most ``limit`` items, so that a slow consumer stops it. Use with
    ``contextlib.aclosing``: leaving then stops the reading at once.

    Raises:
        Exception: What the source raises, after the items it gave before.
    """
    waiting: list[T] = []
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for item in source:
            waiting.append(item)
            arrived.set()
            if len(waiting) == limit:
                taken.clear()
                await taken.wait()

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: arrived.set())
    try:
        while True:
            if waiting:
                batch = waiting.copy()
                waiting.clear()
                taken.set()
                yield batch
            elif reader.done():
                await reader
                return
            else:
                arrived.clear()
                await arrived.wait()
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

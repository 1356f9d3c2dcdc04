"""The gRPC service of the guardrails service: converts messages to domain types and back."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from detection.domain import Piece
from detection.moderation.catalogue import Catalogue
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from detection.shared import JudgingLimits
from servicekit.batching import batched
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from guardrails import wire
from guardrails.ragengine_policy import NO_POLICY, Policy

_Context = grpc.aio.ServicerContext[Any, Any]

# The maximum number of pieces that wait for the detectors. At this number, the service stops reading the stream.
_MAX_WAITING = 64


class GuardrailsServicer(guardrails_pb2_grpc.GuardrailsServiceServicer):
    """Serves `causeway.guardrails.v1.GuardrailsService`: judges whole texts, and texts that arrive in pieces.

    Args:
        catalogue: The detectors.
        workers: The threads that judge long texts.
        limits: The limits on texts, on held-back text and on the search for patterns.
        policy: Returns the current policy of the policy file.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        workers: ThreadPool,
        limits: JudgingLimits,
        policy: Callable[[], Policy] = lambda: NO_POLICY,
    ) -> None:
        self._catalogue = catalogue
        self._policy = policy
        self._workers = workers
        self._limits = limits

    async def DetectText(  # noqa: N802  # the contract's name
        self,
        request: pb.DetectTextRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.DetectTextResponse:
        """Judge whole texts."""
        Principal.from_proto(request.principal)
        rules = self._catalogue.rules(wire.specs(request.detectors))
        detection_context = wire.detection_context(
            request.direction, request.passages, request.surroundings, request.replies_json
        )
        self._limits.check(sum(map(len, request.texts)), "texts")
        self._limits.check(sum(map(len, detection_context.passages)), "passages")
        if request.beside:
            rules = tuple(rule for rule in rules if rule.judges_auxiliary)
        verdicts, failures = await judge(request.texts, rules, detection_context, self._workers)
        return pb.DetectTextResponse(
            verdicts=map(wire.verdict_message, verdicts), failures=wire.failure_messages(failures)
        )

    async def Detect(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.DetectRequest],
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> AsyncGenerator[pb.DetectResponse, None]:
        """Judge texts that arrive in pieces."""
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("step") != "config":
            raise InvalidRequest("The first message must be `config`.", field="config")
        Principal.from_proto(first.config.principal)
        config = first.config
        detection_context = wire.detection_context(config.direction, config.passages, config.surroundings)
        self._limits.check(sum(map(len, detection_context.passages)), "passages")
        session = Session(
            self._catalogue.rules(wire.specs(config.detectors)),
            detection_context,
            wire.chunking(config.chunking),
            self._limits.holding,
            all_hold=config.all_hold,
        )
        pieces = batched(self._pieces(request_iterator), _MAX_WAITING)
        async with contextlib.aclosing(pieces), contextlib.aclosing(session.run(pieces, self._workers)) as run:
            async for steps in run:
                for step in steps:
                    yield wire.progress_message(step)

    async def ListDetectors(  # noqa: N802  # the contract's name
        self,
        request: pb.ListDetectorsRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.ListDetectorsResponse:
        """Return the detectors."""
        Principal.from_proto(request.principal)
        infos = self._catalogue.infos()
        healths = [None] * len(infos) if request.without_health else await self._catalogue.healths()
        return pb.ListDetectorsResponse(
            detectors=map(wire.detector_message, infos, healths), limits=wire.limits_message(self._limits)
        )

    async def GetPolicy(  # noqa: N802  # the contract's name
        self,
        request: pb.GetPolicyRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.GetPolicyResponse:
        """Return the policy of the policy file."""
        Principal.from_proto(request.principal)
        policy = self._policy()
        return pb.GetPolicyResponse(
            output=map(wire.config_message, policy.output), block_message=policy.block_message
        )

    async def _pieces(self, requests: AsyncIterator[pb.DetectRequest]) -> AsyncGenerator[Piece, None]:
        async for request in requests:
            if request.WhichOneof("step") != "piece":
                raise InvalidRequest("Every message after the first must be a `piece`.", field="piece")
            piece = request.piece
            text = piece.text
            self._limits.check(len(text), "piece.text")
            yield Piece(piece.choice, text, piece.last, wire.check_reply(piece.reply_json), piece.beside)

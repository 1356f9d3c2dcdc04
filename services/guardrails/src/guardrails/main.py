"""The composition root: what the guardrails service is made of."""

import asyncio

from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from servicekit.server import GrpcServer

from guardrails.catalogue import Catalogue
from guardrails.detectors.ban_substrings import ban_substrings
from guardrails.detectors.matching import Limits
from guardrails.detectors.regex import regex
from guardrails.servicer import GuardrailsServicer
from guardrails.settings import Settings
from guardrails.workers import Workers


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event is set, then lets running calls finish."""
    limits = Limits(
        held=settings.guardrails_hold_back_limit,
        detections=settings.guardrails_most_detections,
        seconds=settings.guardrails_detector_seconds,
    )
    catalogue = Catalogue([ban_substrings(limits), regex(limits)], settings.guardrails_kept_detectors)
    workers = Workers(settings.guardrails_threads)
    servicer = GuardrailsServicer(catalogue, workers, settings.guardrails_longest_text)
    service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
    server = GrpcServer(
        f"{settings.host}:{settings.guardrails_port}",
        [(service, lambda to: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, to))],
    )
    try:
        await server.serve_until(stop, settings.shutdown_grace)
    finally:
        workers.close()

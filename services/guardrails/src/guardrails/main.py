"""The composition root of the guardrails service."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from detection.detectors.patterns.matching import Limits
from detection.moderation.catalogue import Catalogue
from detection.moderation.hold_back import HoldLimits
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from embedding.cache import default_cache_dir
from embedding.minilm import MiniLmEmbedder
from embedding.port import Embedder
from servicekit.reloadable import Reloadable
from servicekit.server import GrpcServer

from guardrails import ragengine_policy
from guardrails.detector_api import DetectorServer
from guardrails.detectors.child_processes import ChildProcesses
from guardrails.detectors.presidio import detector as presidio
from guardrails.detectors.registry import Resources, built_in
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses
from guardrails.remote.chunkers import Chunkers
from guardrails.remote.registry import RemoteDetectors
from guardrails.servicer import GuardrailsServicer
from guardrails.settings import Settings

_CONNECT_SECONDS = 2.0  # to connect to a remote detector's server


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set; then wait for running calls, at most for the grace period.

    Raises:
        InvalidRequest: A configuration file is invalid.
        Unavailable: The service cannot listen on a port.
    """
    async with AsyncExitStack() as closing:
        workers = ThreadPool(settings.guardrails_threads)
        closing.callback(workers.close)
        processes = CheckProcesses(
            CheckLimits(settings.guardrails_detector_seconds, processes=settings.guardrails_threads)
        )
        closing.push_async_callback(processes.aclose)
        pii_processes: ChildProcesses | None = None
        if settings.guardrails_pii_python is not None:
            pii_processes = presidio.pii_processes(
                settings.guardrails_pii_python, settings.guardrails_model_seconds, settings.guardrails_threads
            )
            closing.push_async_callback(pii_processes.aclose)
        limits = _limits(settings)
        detectors = built_in(
            Resources(
                limits.patterns,
                _embedder(settings, closing),
                settings.guardrails_model_seconds,
                processes,
                pii_processes,
            )
        )
        # Each remote detector has its own limit of concurrent requests and its own time-out.
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        session = await closing.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=True)
        )
        chunkers = Chunkers()
        closing.push_async_callback(chunkers.aclose)
        remote = RemoteDetectors(session, chunkers, {factory.detector_id for factory in detectors})
        if settings.guardrails_detectors_file is not None:
            await closing.enter_async_context(remote.load(settings.guardrails_detectors_file))
        catalogue = Catalogue(detectors, remote=remote.current)
        file: Reloadable[ragengine_policy.Policy] | None = None
        if settings.guardrails_policy_file is not None:
            file = ragengine_policy.load(settings.guardrails_policy_file, catalogue.rules)
            await closing.enter_async_context(file)
        if settings.guardrails_api_port is not None:
            api = DetectorServer(catalogue, workers, settings.guardrails_longest_text, settings.shutdown_grace)
            await api.start(settings.host, settings.guardrails_api_port)
            closing.push_async_callback(api.stop)
        servicer = GuardrailsServicer(
            catalogue,
            workers,
            limits,
            lambda: ragengine_policy.NO_POLICY if file is None else file.current,
        )
        service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
        server = GrpcServer.of(
            settings,
            settings.guardrails_port,
            [(service, lambda grpc: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, grpc))],
            callers=("gateway",),
        )
        await server.serve_until(stop, settings.shutdown_grace)


def _limits(settings: Settings) -> JudgingLimits:
    hold_back_limit = settings.guardrails_hold_back_limit
    return JudgingLimits(
        settings.guardrails_longest_text,
        HoldLimits(hold_back_limit),
        Limits(held_back=hold_back_limit, seconds=settings.guardrails_detector_seconds),
    )


def _embedder(settings: Settings, closing: AsyncExitStack) -> Callable[[], Awaitable[Embedder]]:
    """Return a function that opens the model on first use, because most deployments never use it."""
    lock = asyncio.Lock()
    opened: list[MiniLmEmbedder] = []

    async def open_embedder() -> Embedder:
        async with lock:
            if not opened:
                cache = settings.model_cache or default_cache_dir(os.environ)
                opened.append(await asyncio.to_thread(MiniLmEmbedder.load, cache, workers=1))
                closing.push_async_callback(opened[0].aclose)
        return opened[0]

    return open_embedder

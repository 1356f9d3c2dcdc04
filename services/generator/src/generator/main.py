"""The composition root of the generator."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable
from servicekit.server import GrpcServer
from servicekit.yaml_file import setting_errors

from generator.configuration.adapters import Defaults
from generator.configuration.catalogue import RoutedModels
from generator.configuration.models_file import Configuration, Reader
from generator.configuration.without_file import simple_configuration
from generator.gathering import Gathering, watch
from generator.routing import metrics
from generator.servicer import GeneratorServicer
from generator.settings import Settings

_DESCRIPTOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set; then wait for running answers, at most for the grace period."""
    async with _catalogue(settings) as catalogue:
        servicer = GeneratorServicer(catalogue)
        server = GrpcServer.of(
            settings,
            settings.generator_port,
            [(_DESCRIPTOR, lambda grpc: generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, grpc))],
            callers=("gateway",),
        )
        await server.serve_until(stop, settings.shutdown_grace)


@contextlib.asynccontextmanager
async def _catalogue(settings: Settings) -> AsyncIterator[RoutedModels]:
    gathering = Gathering(settings.stream_interval_ms / 1000)
    watch(gathering)
    catalogue = RoutedModels(
        Defaults(
            connect=settings.model_connect_timeout,
            first_token=settings.model_first_token_timeout,
            whole=settings.model_whole_timeout,
            idle=settings.model_idle_timeout,
            gathering=gathering,
        )
    )
    metrics.watch(catalogue.deployments)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(catalogue.aclose)
        if settings.models_file is None:
            catalogue.serve(
                simple_configuration(
                    base_url=settings.openai_base_url,
                    api_key=settings.openai_api_key,
                    names=settings.openai_model_names(),
                    context_window=settings.openai_context_window,
                    pictures=settings.openai_pictures,
                    tools=settings.openai_tools,
                    default=settings.model or "",
                )
            )
        else:
            file = _open_models_file(settings, catalogue)
            catalogue.serve(file.current)
            await stack.enter_async_context(file)
        yield catalogue


def _open_models_file(settings: Settings, catalogue: RoutedModels) -> Reloadable[Configuration]:
    assert settings.models_file is not None
    if settings.openai_base_url or settings.openai_models:
        raise InvalidRequest(
            "CAUSEWAY_MODELS_FILE cannot be combined with CAUSEWAY_OPENAI_BASE_URL or CAUSEWAY_OPENAI_MODELS: "
            "add this server to the file, and unset these two variables.",
            field="models_file",
        )
    reader = Reader(settings.models_file, os.environ, default=settings.model or "")
    with setting_errors("models_file"):
        return Reloadable(settings.models_file, reader, on_change=catalogue.serve)

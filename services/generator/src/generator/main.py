"""The composition root of the generator."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from servicekit.errors import InvalidRequest
from servicekit.server import GrpcServer

from generator.extractive.model import ExtractiveModel
from generator.models import Models
from generator.ports import Model
from generator.servicer import GeneratorServicer
from generator.settings import Settings
from generator.tokens import counter_for

_DESCRIPTOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event is set; then running answers get the grace to finish."""
    async with _models(settings) as models:
        servicer = GeneratorServicer(
            models, most_events=settings.generator_batch_events, most_bytes=settings.generator_batch_bytes
        )
        server = GrpcServer(
            f"{settings.host}:{settings.generator_port}",
            [(_DESCRIPTOR, lambda to: generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, to))],
        )
        await server.serve_until(stop, settings.shutdown_grace)


@contextlib.asynccontextmanager
async def _models(settings: Settings) -> AsyncIterator[Models]:
    made: list[Model] = [ExtractiveModel(window=settings.extractive_context_window)]
    names = settings.openai_model_names()
    if names and settings.openai_base_url is None:
        raise InvalidRequest("CAUSEWAY_OPENAI_MODELS needs CAUSEWAY_OPENAI_BASE_URL.", field="openai_base_url")
    made += _openai_models(settings, settings.openai_base_url, names) if settings.openai_base_url else []
    # The default one first; the order of the others stays.
    made.sort(key=lambda model: model.name != settings.model)
    try:
        if made[0].name != settings.model:
            known = ", ".join(sorted(model.name for model in made))
            raise InvalidRequest(
                f"CAUSEWAY_MODEL: there is no model '{settings.model}'; there are: {known}.", field="model"
            )
        models = Models(made)
        yield models
    finally:
        for model in made:
            await model.aclose()


def _openai_models(settings: Settings, base_url: str, names: list[tuple[str, str]]) -> list[Model]:
    # Imported here, because a process that serves the extractive model only should not carry the client (20 MB).
    from generator.openai.model import OpenAIModel
    from generator.openai.reply import Limits
    from generator.openai.server import ModelServer

    # Its client writes a line for every request, which costs as much as relaying twenty tokens.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    limits = Limits(
        connect=settings.model_connect_timeout,
        first_byte=settings.model_first_byte_timeout,
        idle=settings.model_idle_timeout,
        most_bytes=settings.model_max_bytes,
    )
    server = ModelServer(base_url, settings.openai_api_key, limits)
    return [
        OpenAIModel(
            public,
            server,
            server_name=name,
            tokens=counter_for(name),
            window=settings.openai_context_window,
        )
        for public, name in names
    ]

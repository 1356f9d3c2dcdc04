"""The composition root of the worker: creates its parts and runs it."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog
from causeway.retriever.v1 import retriever_pb2
from embedding.cache import default_cache_dir
from embedding.models import EmbeddingModels
from nats.aio.client import Client
from nats.errors import NoServersError
from servicekit import nats
from servicekit.allowed_urls import AllowedUrls
from servicekit.channel import open_channel
from servicekit.original_store import OriginalStore, create_original_store
from servicekit.server import GrpcServer
from servicekit.stream_levels import INGEST_STREAMS, StreamLevels
from servicekit.tasks import cancel_and_wait
from servicekit.tls import Certificates

from ingest.adapters.messages import ProtoTextReader
from ingest.adapters.queue import NatsQueue
from ingest.adapters.retriever import RetrieverIndex
from ingest.adapters.stores import NatsJobs, NatsPictures, StoredOriginals
from ingest.documents.access_changes import AccessChanges
from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import IndexWriter
from ingest.documents.ingestion import Ingestion
from ingest.documents.text_ingestion import TextIngestion
from ingest.jobs.worker import Worker
from ingest.ocr.reading import OcrParser
from ingest.ocr.recogniser import Recogniser
from ingest.parsing.process import Limits, ProcessParser
from ingest.settings import Settings
from ingest.web.addresses import is_public
from ingest.web.fetcher import WebFetcher

_log = structlog.get_logger(__name__)
_RETRIEVER = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
_CONNECT_PAUSE = 1.0
"""Seconds between two attempts to connect to NATS."""


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Run a worker until the event is set.

    Raises:
        InvalidRequest: The embeddings file, or a file that the settings of the store of originals name, is invalid.
        Unavailable: The bundled model cannot be loaded, or NATS does not have enough space.
    """
    async with AsyncExitStack() as stack:
        models = _models(settings)
        stack.push_async_callback(models.aclose)
        client = await _connected(settings, stop)
        if client is None:
            return
        stack.push_async_callback(client.close)
        await work(settings, stop, client, models)


async def work(
    settings: Settings,
    stop: asyncio.Event,
    client: Client,
    embedding: EmbeddingModels,
    *,
    is_allowed_address: Callable[[str], bool] = is_public,
) -> None:
    """Run a worker until the event is set.

    The health check succeeds as soon as the worker runs, even while a dependency other than NATS is unavailable.

    Args:
        settings: The settings.
        stop: The event.
        client: The connection to NATS.
        embedding: The embedding models.
        is_allowed_address: Returns whether the worker may fetch documents from an IP address.

    Raises:
        InvalidRequest: A file that the settings of the store of originals name is invalid.
        Unavailable: NATS does not have enough space.
    """
    transport = await nats.ingest_transport(
        client, replicas=settings.nats_replicas, stream_bytes=settings.nats_stream_bytes
    )
    queue = NatsQueue(client, transport)
    jobs = NatsJobs(client, transport.jobs)
    async with AsyncExitStack() as stack:
        certificates = Certificates.of(settings)
        channel = await stack.enter_async_context(
            open_channel(settings.retriever_target, [_RETRIEVER], certificates)
        )
        index = RetrieverIndex(channel)
        process = ProcessParser(
            Limits(
                pages=settings.ingest_max_pages,
                characters=settings.ingest_max_characters,
                seconds=settings.ingest_parse_seconds,
                memory=settings.ingest_parse_memory,
                pictures=settings.ingest_max_pictures,
            )
        )
        stack.push_async_callback(process.aclose)
        recogniser = None
        if settings.ingest_ocr_python is not None:
            recogniser = Recogniser(settings.ingest_ocr_python, settings.ingest_ocr_seconds)
            stack.push_async_callback(recogniser.aclose)
        parser = OcrParser(process, recogniser)
        web = WebFetcher(
            AllowedUrls.of(settings.ingest_urls),
            max_bytes=settings.ingest_max_bytes,
            seconds=settings.ingest_url_seconds,
            is_allowed_address=is_allowed_address,
        )
        stack.push_async_callback(web.aclose)
        models = IndexingModels(
            embedding, index, tokens=settings.ingest_chunk_tokens, overlap=settings.ingest_chunk_overlap
        )
        store = await _originals(settings, transport)
        originals, writer = StoredOriginals(store), IndexWriter(index, settings.ingest_max_chunks)
        ingestion = Ingestion(
            FileIngestion(
                originals,
                Downloads(web, originals, max_bytes=settings.ingest_max_bytes),
                parser,
                models,
                writer,
                index,
                NatsPictures(transport),
                max_bytes=settings.ingest_max_bytes,
                max_members=settings.ingest_max_members,
            ),
            TextIngestion(
                originals,
                ProtoTextReader(),
                models,
                writer,
                index,
                parser,
                max_characters=settings.ingest_max_characters,
                max_chunks=settings.ingest_max_chunks,
            ),
            AccessChanges(index),
            originals,
        )
        worker = Worker(
            queue,
            jobs,
            index,
            ingestion,
            slots=settings.ingest_jobs,
            max_attempts=settings.ingest_max_attempts,
            outage_seconds=settings.ingest_outage_seconds,
            backoff_seconds=settings.ingest_retry_seconds,
            heartbeat_seconds=nats.ACK_WAIT / 3,
        )
        server = GrpcServer.of(settings, settings.ingest_port, [])
        if settings.metrics_port is not None:
            levels = StreamLevels(client, INGEST_STREAMS)
            stack.push_async_callback(cancel_and_wait, asyncio.create_task(levels.watch()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve_until(stop, settings.shutdown_grace))
            tasks.create_task(worker.run(stop, settings.shutdown_grace))


async def _originals(settings: Settings, transport: nats.IngestTransport) -> OriginalStore:
    """Open the store of the originals. If the store is unavailable, log a warning; jobs then wait for the store."""

    async def ready() -> nats.IngestTransport:
        return transport

    store = create_original_store(settings, ready)
    if (problem := await store.problem()) is not None:
        _log.warning("the store of the originals is unavailable", problem=problem)
    return store


def _models(settings: Settings) -> EmbeddingModels:
    return EmbeddingModels.open(
        settings.embeddings_file,
        os.environ,
        cache_dir=settings.model_cache or default_cache_dir(os.environ),
        workers=settings.ingest_embedding_threads,
    )


async def _connected(settings: Settings, stop: asyncio.Event) -> Client | None:
    """Connect to NATS; retry until a server responds. Return None if ``stop`` is set first."""
    certificates = Certificates.of(settings)
    while not stop.is_set():
        try:
            return await nats.connect(settings.nats_url, "ingest", certificates=certificates)
        except (NoServersError, OSError) as error:
            _log.warning("waiting for nats", url=settings.nats_url, error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CONNECT_PAUSE):
                    await stop.wait()
    return None

"""The composition root. It creates each component once and closes them in reverse order."""

import asyncio
import os
from contextlib import AsyncExitStack

from causeway.retriever.v1 import backup_pb2, backup_pb2_grpc, retriever_pb2, retriever_pb2_grpc
from embedding.cache import default_cache_dir
from embedding.models import EmbeddingModels
from servicekit import metrics, permissions
from servicekit.server import GrpcServer
from servicekit.tasks import cancel_and_wait

from retriever.backup_servicer import BackupServicer
from retriever.clients.rerankers import open_rerankers
from retriever.concurrency.scheduler import Scheduler
from retriever.documents.catalogue import Catalogue
from retriever.documents.group_commit import GroupCommit
from retriever.documents.upsert import Upserts
from retriever.embedding.query_vectors import QueryVectors
from retriever.embedding.text_vectors import Embeddings
from retriever.indexes.backups import Backups
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.rebuild_jobs import Rebuilds
from retriever.indexes.snapshots import Snapshots
from retriever.languages.detector import LanguageDetector
from retriever.languages.document_analyzer import DocumentAnalyzer
from retriever.ports.store import Store
from retriever.rerankers.reranking import Reranking
from retriever.search.query_analyzer import QueryAnalyzer
from retriever.search.retrieval import Retrieval
from retriever.servicer import RetrieverServicer
from retriever.settings import RetrieverSettings
from retriever.stores import registry
from retriever.stores.bm25 import Bm25Encoder

_MAX_UPSERTS = 16  # concurrent; each has two messages in memory
_MAX_WAITING_UPSERTS = 256  # further upserts are refused with RESOURCE_EXHAUSTED


async def serve(settings: RetrieverSettings, stop: asyncio.Event) -> None:
    """Serve until the event is set. Then wait for the running calls, and close the store.

    Raises:
        InvalidRequest: The file of the embedding models or of the rerankers cannot be used, or the settings of the
            store are wrong.
        Unavailable: The bundled embedding model is not built, or the store cannot be opened.
    """
    async with AsyncExitStack() as closing:
        models = _models(settings)
        closing.push_async_callback(models.aclose)
        rerankers = open_rerankers(settings.rerankers_file, os.environ)
        closing.push_async_callback(rerankers.aclose)
        metrics.observed(
            __name__, "causeway.reranker.resting", "", "1: the circuit breaker is open.", rerankers.resting
        )
        scheduler = Scheduler()
        store = await _store(settings, scheduler, stop)
        if store is None:
            return
        closing.push_async_callback(store.aclose)
        indexes = await Indexes.open(store)
        closing.push_async_callback(indexes.aclose)
        encoder, detector = Bm25Encoder(scheduler), LanguageDetector()
        analyzer = DocumentAnalyzer(encoder, detector)
        rebuilds = Rebuilds(indexes, models, analyzer)
        closing.push_async_callback(rebuilds.aclose)
        servicer = RetrieverServicer(
            Retrieval(
                indexes,
                QueryVectors(models),
                encoder,
                QueryAnalyzer(encoder, detector),
                scheduler,
                Reranking(rerankers),
                trace_content=settings.trace_content,
            ),
            Upserts(
                indexes,
                GroupCommit(indexes),
                analyzer,
                max_concurrent=_MAX_UPSERTS,
                max_waiting=_MAX_WAITING_UPSERTS,
            ),
            Catalogue(indexes),
            Snapshots(
                indexes,
                settings.snapshot_dir or settings.data_dir / "snapshots",
                models,
                settings.max_tenant_snapshots,
            ),
            rebuilds,
            Embeddings(models),
        )
        backups = BackupServicer(Backups(indexes, settings.data_dir / "backups", models))
        rebuilds.resume()
        server = GrpcServer.of(
            settings,
            settings.retriever_port,
            [
                (
                    retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"],
                    lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
                ),
                (
                    backup_pb2.DESCRIPTOR.services_by_name["BackupService"],
                    lambda server: backup_pb2_grpc.add_BackupServiceServicer_to_server(backups, server),
                ),
            ],
            callers=("gateway", "ingest", permissions.OPERATOR),
        )
        await server.serve_until(stop, settings.shutdown_grace)


async def _store(settings: RetrieverSettings, scheduler: Scheduler, stop: asyncio.Event) -> Store | None:
    """Open the store and return it. Return None if the process is stopped while it waits for the store."""

    async def opened() -> Store:
        return await registry.chosen(settings).open(settings, scheduler)

    opening, stopping = asyncio.create_task(opened()), asyncio.create_task(stop.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if opening.done():
        return opening.result()
    await cancel_and_wait(opening)
    return None


def _models(settings: RetrieverSettings) -> EmbeddingModels:
    return EmbeddingModels.open(
        settings.embeddings_file,
        os.environ,
        cache_dir=settings.model_cache or default_cache_dir(os.environ),
        workers=settings.retriever_embedding_threads,
    )

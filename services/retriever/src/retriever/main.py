"""The composition root: everything is made here, once, and closed in the opposite order."""

import asyncio
import os
from contextlib import AsyncExitStack

from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from embedding.cache import default_cache_dir
from embedding.models import EmbeddingModels
from servicekit import metrics
from servicekit.server import GrpcServer

from retriever.catalogue import Catalogue
from retriever.embeddings import Embeddings
from retriever.indexes import Indexes
from retriever.pace import Pace
from retriever.query_vectors import QueryVectors
from retriever.rebuilds import Rebuilds
from retriever.rerankers.rerankers import Rerankers
from retriever.rerankers.reranking import Reranking
from retriever.retrieval import Retrieval
from retriever.servicer import RetrieverServicer
from retriever.settings import Settings
from retriever.snapshots import Snapshots
from retriever.store.bm25 import Bm25Encoder
from retriever.store.building import Limits
from retriever.store.compaction import Policy
from retriever.store.edge import EdgeStore
from retriever.store.port import Store
from retriever.store.qdrant import QdrantStore
from retriever.store.qdrant_link import Layout, Link
from retriever.upsert import Upserts

_MEGABYTE = 1024 * 1024


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event is set, then lets running calls finish and closes the store.

    Raises:
        InvalidRequest: The file of the embedding models cannot be used.
        Unavailable: The bundled one is not built, or the store cannot be opened.
    """
    async with AsyncExitStack() as closing:
        models = _models(settings)
        closing.push_async_callback(models.aclose)
        rerankers = Rerankers.open(settings.rerankers_file, os.environ)
        closing.push_async_callback(rerankers.aclose)
        metrics.observed(
            __name__, "causeway.reranker.resting", "", "1: left alone after failures.", rerankers.resting
        )
        pace = Pace()
        store = await _store(settings, pace)
        closing.push_async_callback(store.aclose)
        indexes = await Indexes.open(store)
        closing.push_async_callback(indexes.aclose)
        rebuilds = Rebuilds(indexes, models)
        closing.push_async_callback(rebuilds.aclose)
        encoder = Bm25Encoder(pace)
        servicer = RetrieverServicer(
            Retrieval(
                indexes,
                QueryVectors(models),
                encoder,
                pace,
                Reranking(rerankers),
                settings.retrieve_top,
                trace_content=settings.trace_content,
            ),
            Upserts(
                indexes,
                encoder,
                concurrent=settings.retriever_upserts,
                waiting=settings.retriever_upserts_waiting,
                idle_seconds=settings.retriever_upsert_idle,
            ),
            Catalogue(indexes),
            Snapshots(indexes, settings.snapshot_dir or settings.data_dir / "snapshots", models),
            rebuilds,
            Embeddings(models),
        )
        await rebuilds.resume()
        server = GrpcServer.of(
            settings,
            settings.retriever_port,
            [
                (
                    retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"],
                    lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
                )
            ],
            callers=("gateway", "ingest"),
        )
        await server.serve_until(stop, settings.shutdown_grace)


async def _store(settings: Settings, pace: Pace) -> Store:
    if settings.qdrant_url:
        layout = Layout(
            settings.qdrant_prefix,
            settings.qdrant_shards,
            settings.qdrant_replicas,
            settings.qdrant_write_consistency,
            settings.qdrant_quantization,
            settings.qdrant_on_disk,
        )
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        return await QdrantStore.open(Link.to(settings.qdrant_url, key, settings.qdrant_timeout), layout)
    return EdgeStore(
        settings.data_dir / "retriever",
        pace,
        settings.retriever_min_free_mb * _MEGABYTE,
        exact_up_to=settings.retriever_exact_up_to,
        policy=Policy(removed=settings.retriever_compact_removed, added=max(1, settings.retriever_exact_up_to)),
        limits=Limits(settings.retriever_build_seconds, settings.retriever_build_memory_mb * _MEGABYTE),
    )


def _models(settings: Settings) -> EmbeddingModels:
    return EmbeddingModels.open(
        settings.embeddings_file,
        os.environ,
        cache_dir=settings.model_cache or default_cache_dir(os.environ),
        workers=settings.retriever_embedding_threads,
    )

"""Counts the Python function calls of ingest and of the retriever for a small document.

The ports of ingest are in memory, and its parser is the real one. The index of the retriever is on disk.
"""

import asyncio
import itertools
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from causeway.retriever.v1 import document_pb2, retriever_pb2
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.ingest.memory import (
    LineReader,
    MemoryDelivery,
    MemoryIndex,
    MemoryJobs,
    MemoryOriginals,
    MemoryPictures,
    MemoryQueue,
    make_job,
)
from causeway_testing.ingest.web import MemoryWeb
from causeway_testing.loopback import LoopbackContext
from causeway_testing.retriever.bench import INDEX, Bench
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.access_changes import AccessChanges
from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import IndexWriter
from ingest.documents.ingestion import Ingestion
from ingest.documents.text_ingestion import TextIngestion
from ingest.domain import FileJob
from ingest.jobs.worker import Worker
from ingest.ocr.reading import OcrParser
from ingest.parsing.process import Limits, ProcessParser
from retriever.concurrency.scheduler import Scheduler
from retriever.servicer import RetrieverServicer
from retriever.stores.edge.store import EdgeStore
from servicekit.principal import LOCAL

from call_counting.profiler import RPC, calls
from call_counting.texts import text

RECORDS = "records of a job: "
"""The prefix of the counts of records that are written and synced. These counts must not grow."""
_NAME = "a small document"
_TEXT = text(1)
_LIMIT = 10_000


class _Counted:
    """Counts the calls of a port's methods."""

    def __init__(self, port: object) -> None:
        self._port = port
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._port, name)


async def counts() -> dict[str, float]:
    """Return the Python calls of both services, the calls between them, and the records of the job."""
    return await _ingesting() | {f"retriever, {_NAME}": await _storing()}


class _Queue(MemoryQueue):
    """Delivers one job, then stops the worker."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: list[FileJob] = []
        self.stop = asyncio.Event()

    def give(self, job: FileJob) -> None:
        self._jobs.append(job)
        self.stop.clear()

    async def take(self) -> MemoryDelivery | None:
        if self._jobs:
            return MemoryDelivery(self, self._jobs.pop(), 1, {})
        self.stop.set()
        return None


async def _ingesting() -> dict[str, float]:
    index, jobs = _Counted(MemoryIndex()), _Counted(MemoryJobs())
    originals, queue, port = MemoryOriginals(), _Queue(), _any(index)
    models = IndexingModels(EmbeddingModels([EmbeddingModel.of(HashingEmbedder(64))]), port, tokens=200, overlap=0)
    storing, parser = IndexWriter(port, _LIMIT), OcrParser(ProcessParser(Limits()), None)
    files = FileIngestion(
        originals,
        Downloads(MemoryWeb(), originals, max_bytes=_LIMIT),
        parser,
        models,
        storing,
        port,
        MemoryPictures(),
        max_bytes=_LIMIT,
    )
    texts = TextIngestion(
        originals, LineReader(), models, storing, port, parser, max_characters=_LIMIT, max_chunks=_LIMIT
    )
    ingestion = Ingestion(files, texts, AccessChanges(port), originals)
    worker = Worker(
        queue,
        _any(jobs),
        port,
        ingestion,
        slots=1,
        max_attempts=5,
        outage_seconds=60,
        backoff_seconds=1,
        heartbeat_seconds=60,
    )
    numbers = itertools.count()

    async def work() -> None:
        content = _TEXT.encode()
        job = replace(make_job(content, f"note-{next(numbers)}.txt"), content=content)
        index.calls.clear()
        jobs.calls.clear()
        queue.give(job)
        await worker.run(queue.stop, grace=60)
        assert jobs.calls["write"]

    found = await calls(work)
    return {
        f"ingest, {_NAME}": found,
        f"{RPC}{_NAME}": index.calls.total(),
        f"{RECORDS}{_NAME}": jobs.calls["write"],
    }


async def _storing() -> float:
    with tempfile.TemporaryDirectory(prefix="causeway-calls-") as directory:
        scheduler = Scheduler()
        bench = await Bench.open(EdgeStore(Path(directory), scheduler), scheduler)
        try:
            nothing: Any = None  # an upsert does not use these collaborators
            servicer = RetrieverServicer(bench.retrieval, bench.upserts, bench.catalogue, nothing, nothing, nothing)
            numbers = itertools.count(1)
            context = _any(LoopbackContext())

            async def work() -> None:
                name = f"note-{next(numbers)}.txt"
                request = retriever_pb2.GetIndexRequest(principal=LOCAL.to_proto(), index=INDEX, document_id=name)
                if name != "note-1.txt":  # the first document creates the index
                    await servicer.GetIndex(request, context)
                response = await servicer.StoreDocument(_request(name), context)
                assert response.outcome == retriever_pb2.UPSERT_OUTCOME_CREATED

            return await calls(work)
        finally:
            await bench.aclose()


def _request(name: str) -> retriever_pb2.StoreDocumentRequest:
    document = document_pb2.Document(document_id=name, sourcefile=name, generation=1, sha256="0" * 64)
    begin = retriever_pb2.UpsertBegin(
        principal=LOCAL.to_proto(), index=INDEX, document=document, embedding_model="hashing", dimension=64
    )
    chunk = document_pb2.Chunk(text=_TEXT, indexed_text=_TEXT, vector=np.eye(1, 64)[0].tolist())
    return retriever_pb2.StoreDocumentRequest(begin=begin, chunks=[chunk])


def _any(port: object) -> Any:
    """Return a port as `Any`; the object has all methods that are called."""
    return port

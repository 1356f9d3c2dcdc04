"""Fixtures: documents, a retriever in memory, and the gateway's side of a job."""

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from causeway.ingest.v1 import ingest_pb2
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.servers import nats_server
from embedding.models import EmbeddingModel, EmbeddingModels
from fpdf import FPDF
from ingest.main import work
from ingest.settings import Settings
from ingest.web.addresses import is_public
from nats.aio.client import Client
from PIL import Image
from servicekit import keys, nats
from servicekit.errors import InvalidRequest, NotFound, StaleGeneration
from servicekit.nats import IngestTransport
from servicekit.principal import Principal
from servicekit.server import GrpcServer

TENANT = Principal("acme", user="mia", roles=("ingest",))


@pytest.fixture
def make_pdf() -> Callable[..., bytes]:
    """Return a function that creates a PDF with the given pages; with a password, the PDF is encrypted."""

    def make(*pages: str, password: str = "", title: str = "") -> bytes:
        document = FPDF()
        document.set_font("Helvetica", size=11)
        for text in pages:
            document.add_page()
            if title:
                document.set_font("Helvetica", size=20)
                document.multi_cell(0, 12, title, new_x="LMARGIN", new_y="NEXT")
                document.set_font("Helvetica", size=11)
            if text:
                document.multi_cell(0, 6, text, new_x="LMARGIN", new_y="NEXT")
        if password:
            document.set_encryption(owner_password=password + "!", user_password=password)
        return bytes(document.output())

    return make


@pytest.fixture
def scanned_pdf() -> bytes:
    """Return a PDF whose only page is a picture."""
    document = FPDF()
    document.add_page()
    document.image(Image.new("RGB", (60, 40), "white"), w=100)
    return bytes(document.output())


@pytest.fixture
def png() -> bytes:
    """Return a picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "PNG")
    return buffer.getvalue()


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """A retriever in memory, with the part of its contract that ingest uses.

    Attributes:
        documents: The committed records and chunks, by tenant, index and document id.
        upserts: Number of calls that have begun to store a document.
        commits: Number of commits that changed something.
        spaces: Model and dimension by tenant and index.
        settings: The settings of all indexes.
        reading: An event. While it is cleared, the retriever reads no chunks and stores no documents.
        defect: The error that `GetDocument` and a look-up raise.
        is_old: Whether to behave like an older version: `GetIndex` without look-up, and no `StoreDocument`.
        at_once: Number of calls of `StoreDocument`.
        lookups: Number of documents that `GetIndex` has looked up.
    """

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str, str], tuple[document_pb2.Document, list[document_pb2.Chunk]]] = {}
        self.spaces: dict[tuple[str, str], tuple[str, int]] = {}
        self.settings = retriever_pb2.IndexSettings()
        self.upserts = 0
        self.commits = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self.defect: Exception | None = None
        self.is_old = False
        self.at_once = 0
        self.lookups = 0

    async def GetIndex(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.GetIndexRequest, context: Any
    ) -> retriever_pb2.GetIndexResponse:
        if self.defect is not None and request.document_id:
            raise self.defect
        space = self.spaces.get((request.principal.tenant, request.index))
        if space is None:
            raise NotFound("No such index.")
        found = retriever_pb2.GetIndexResponse(embedding_model=space[0], dimension=space[1], settings=self.settings)
        if request.document_id and not self.is_old:
            self.lookups += 1
            key = (request.principal.tenant, request.index, request.document_id)
            document = self.documents[key][0] if key in self.documents else None
            found.lookup.CopyFrom(retriever_pb2.DocumentLookup(document=document))
        return found

    async def GetDocument(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.GetDocumentRequest, context: Any
    ) -> retriever_pb2.GetDocumentResponse:
        if self.defect is not None:
            raise self.defect
        key = (request.principal.tenant, request.index, request.document_id)
        if key not in self.documents:
            raise NotFound("No such document.")
        return retriever_pb2.GetDocumentResponse(document=self.documents[key][0])

    async def ListDocuments(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.ListDocumentsRequest, context: Any
    ) -> retriever_pb2.ListDocumentsResponse:
        [condition] = request.filter.must
        assert condition.match_any.field == f"metadata.{keys.PART_OF_ID}"
        [outer] = map(json.loads, condition.match_any.json_values)
        found = [document for document in self._of(request) if self._outer(document) == outer]
        first = int(request.page_token or 0)
        token = str(first + 1) if len(found) > first + 1 else ""  # pages of one
        return retriever_pb2.ListDocumentsResponse(documents=found[first : first + 1], next_page_token=token)

    async def DeleteDocuments(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.DeleteDocumentsRequest, context: Any
    ) -> retriever_pb2.DeleteDocumentsResponse:
        removed = [
            document
            for document in self._of(request)
            if {document.document_id, self._outer(document)} & {*request.document_ids}
        ]
        for document in removed:
            del self.documents[request.principal.tenant, request.index, document.document_id]
        return retriever_pb2.DeleteDocumentsResponse(deleted=removed)

    def _of(self, request: Any) -> list[document_pb2.Document]:
        tenant_and_index = (request.principal.tenant, request.index)
        return [document for key, (document, _) in self.documents.items() if key[:2] == tenant_and_index]

    def _outer(self, document: document_pb2.Document) -> Any:
        return json.loads(document.metadata_json or b"{}").get(keys.PART_OF_ID)

    async def UpdateDocument(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.UpdateDocumentRequest, context: Any
    ) -> retriever_pb2.UpdateDocumentResponse:
        key = (request.principal.tenant, request.index, request.document.document_id)
        stored, chunks = self.documents.get(key, (None, []))
        if stored is None or stored.sha256 != request.document.sha256:
            raise NotFound("No such document.")
        if stored.generation > request.document.generation:
            raise StaleGeneration("The index already has a newer version of the document.")
        updated = document_pb2.Document()
        updated.CopyFrom(stored)
        for name in ("metadata_json", "category", "language", "generation"):
            setattr(updated, name, getattr(request.document, name))
        updated.access.CopyFrom(request.document.access)
        self.documents[key] = (updated, chunks)
        stored.generation = updated.generation
        outcome = (
            retriever_pb2.UPDATE_OUTCOME_UNCHANGED if stored == updated else retriever_pb2.UPDATE_OUTCOME_UPDATED
        )
        return retriever_pb2.UpdateDocumentResponse(outcome=outcome, document=updated)

    async def Upsert(  # noqa: N802  # the contract's name
        self, request_iterator: AsyncIterator[retriever_pb2.UpsertRequest], context: Any
    ) -> retriever_pb2.UpsertResponse:
        self.upserts += 1
        begin: retriever_pb2.UpsertBegin | None = None
        chunks: list[document_pb2.Chunk] = []
        async for request in request_iterator:
            await self.reading.wait()
            match request.WhichOneof("step"):
                case "begin":
                    begin = request.begin
                    self._check(begin)
                case "chunks":
                    assert begin is not None
                    if len(request.chunks.chunks) > 64:
                        raise InvalidRequest("More than 64 chunks.")
                    chunks.extend(request.chunks.chunks)
                    if any(len(chunk.vector) != begin.dimension for chunk in chunks):
                        raise InvalidRequest("A vector of another length.")
                case "commit":
                    assert begin is not None
                    return self._commit(begin, chunks, request.commit.chunk_count)
        raise InvalidRequest("No commit.")

    async def StoreDocument(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.StoreDocumentRequest, context: Any
    ) -> retriever_pb2.StoreDocumentResponse:
        if self.is_old:
            raise NotImplementedError
        self.upserts += 1
        self.at_once += 1
        await self.reading.wait()
        answer = self._commit(request.begin, list(request.chunks), len(request.chunks))
        return retriever_pb2.StoreDocumentResponse(outcome=answer.outcome)

    def _check(self, begin: retriever_pb2.UpsertBegin) -> document_pb2.Document | None:
        space = (begin.embedding_model, begin.dimension)
        if self.spaces.get((begin.principal.tenant, begin.index), space) != space:
            raise InvalidRequest("The index has vectors of another model.", field="embedding_model")
        stored = self.documents.get((begin.principal.tenant, begin.index, begin.document.document_id))
        if stored is not None and stored[0].generation > begin.document.generation:
            raise StaleGeneration("The index already has a newer version of the document.")
        return stored[0] if stored else None

    def _commit(
        self, begin: retriever_pb2.UpsertBegin, chunks: list[document_pb2.Chunk], count: int
    ) -> retriever_pb2.UpsertResponse:
        stored = self._check(begin)
        if count != len(chunks) or [chunk.number for chunk in chunks] != list(range(count)):
            raise InvalidRequest("Another number of chunks.")
        if stored is not None and stored.generation == begin.document.generation:
            return retriever_pb2.UpsertResponse(
                outcome=retriever_pb2.UPSERT_OUTCOME_UNCHANGED, document=begin.document
            )
        begin.document.chunk_count = count
        self.spaces[begin.principal.tenant, begin.index] = (begin.embedding_model, begin.dimension)
        self.commits += 1
        self.documents[begin.principal.tenant, begin.index, begin.document.document_id] = (begin.document, chunks)
        outcome = retriever_pb2.UPSERT_OUTCOME_REPLACED if stored else retriever_pb2.UPSERT_OUTCOME_CREATED
        return retriever_pb2.UpsertResponse(outcome=outcome, document=begin.document)

    def texts(self, name: str, index: str = "library") -> list[str]:
        """Return the texts of a document's chunks."""
        _, chunks = self.documents[TENANT.tenant, index, keys.document_id(name)]
        return [chunk.text for chunk in chunks]


@contextlib.asynccontextmanager
async def serving(retriever: Retriever, port: int = 0) -> AsyncIterator[str]:
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]

    def add(server: grpc.aio.Server) -> None:
        retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(retriever, server)

    server = GrpcServer(f"127.0.0.1:{port}", [(descriptor, add)])
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


@pytest.fixture
def serve_retriever() -> Callable[..., contextlib.AbstractAsyncContextManager[str]]:
    """Return a context manager that serves a retriever, by default on a free port, and yields its target."""
    return serving


@pytest.fixture
def retriever() -> Retriever:
    """Return a retriever that is not served yet."""
    return Retriever()  # type: ignore[abstract]  # ingest calls seven of its methods


@pytest.fixture
async def retriever_target(retriever: Retriever) -> AsyncIterator[str]:
    """Serve the retriever; return its target."""
    async with serving(retriever) as target:
        yield target


@pytest.fixture
async def nats_url(tmp_path: Path) -> AsyncIterator[str]:
    """Start a nats-server for the test; return its URL."""
    async with nats_server(tmp_path / "nats") as url:
        yield url


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Client]:
    """Return a connection to the nats-server."""
    client = await nats.connect(nats_url, "test")
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def transport(client: Client) -> IngestTransport:
    """Return the streams and buckets of the nats-server."""
    return await nats.ingest_transport(client)


class Gateway:
    """The gateway's side: submits jobs and reads their states."""

    def __init__(self, transport: IngestTransport) -> None:
        self.transport = transport

    async def submit(
        self,
        name: str,
        content: bytes,
        *,
        index: str = "library",
        lane: int = 0,
        url: str = "",
        headers: dict[str, str] | None = None,
        has_content: bool = False,
        **fields: Any,
    ) -> str:
        """Store original, state and job, in this order; return the job's id. With a URL, no original is stored.

        Args:
            name: The name of the file.
            content: The original.
            index: The index.
            lane: The lane of the job.
            url: The URL of the original.
            headers: Further headers of the message.
            has_content: Whether the message has the bytes of the original.
            fields: Further fields of the document.
        """
        job_id = uuid.uuid4().hex
        sha256 = hashlib.sha256(content).hexdigest()
        object_name = keys.original_object(TENANT.tenant, index, job_id)
        if not url:
            await self.transport.originals.put(object_name, content)
        document = document_pb2.Document(
            document_id=keys.document_id(name),
            sourcefile=name,
            sha256="" if url else sha256,
            size_bytes=len(content),
            **fields,
        )
        principal = TENANT.to_proto()
        state = ingest_pb2.Job(
            job_id=job_id,
            principal=principal,
            index=index,
            document_id=document.document_id,
            sourcefile=name,
            state=ingest_pb2.JOB_STATE_QUEUED,
            trace_id="ab" * 16,
        )
        state.created_at.FromSeconds(1_700_000_000)
        await self.transport.jobs.put(keys.job_key(TENANT.tenant, job_id), state.SerializeToString())
        job = ingest_pb2.IngestJob(
            job_id=job_id,
            principal=principal,
            index=index,
            document=document,
            object_name=object_name,
            url=url,
            content=content if has_content else b"",
        )
        await self.transport.jetstream.publish(
            keys.ingest_subject(lane, TENANT.tenant, index),
            job.SerializeToString(),
            headers={"Nats-Msg-Id": job_id, **(headers or {})},
        )
        return job_id

    async def job(self, job_id: str) -> ingest_pb2.Job:
        """Return the current state of a job."""
        entry = await self.transport.jobs.get(keys.job_key(TENANT.tenant, job_id))
        return ingest_pb2.Job.FromString(entry.value or b"")

    async def until(self, job_id: str, condition: Callable[[ingest_pb2.Job], object], within: float = 60) -> Any:
        """Wait until a job's state meets a condition, and return the state."""
        async with asyncio.timeout(within):
            while True:
                with contextlib.suppress(Exception):  # while the broker is away
                    job = await self.job(job_id)
                    if condition(job):
                        return job
                await asyncio.sleep(0.02)

    async def finished(self, job_id: str, within: float = 60) -> Any:
        """Wait until a job has ended, and return its state."""
        return await self.until(job_id, lambda job: job.state >= ingest_pb2.JOB_STATE_SUCCEEDED, within)

    async def emptied(self) -> None:
        """Wait until the stream of the jobs is empty, which means that all jobs have ended."""
        async with asyncio.timeout(60):
            while (await self.transport.jetstream.stream_info(keys.INGEST_STREAM)).state.messages:  # noqa: ASYNC110  # the server's
                await asyncio.sleep(0.02)

    async def dead(self) -> Iterable[Any]:
        """Return the dead letters."""
        info = await self.transport.jetstream.stream_info(keys.INGEST_DEAD_STREAM)
        return [
            await self.transport.jetstream.get_msg(keys.INGEST_DEAD_STREAM, seq)
            for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1)
        ]


@pytest.fixture
def gateway(transport: IngestTransport) -> Gateway:
    """Return the gateway's side."""
    return Gateway(transport)


@pytest.fixture
def make_gateway() -> type[Gateway]:
    """Return the class of the gateway's side."""
    return Gateway


@pytest.fixture
async def run_worker(nats_url: str) -> AsyncIterator[Callable[..., Awaitable[Callable[[], Awaitable[None]]]]]:
    """Yield a function that starts a worker in this process, and returns a function that stops it.

    By default, the worker uses an embedder that needs no model.
    """
    running: list[tuple[asyncio.Event, asyncio.Task[None], Client]] = []

    async def run(
        target: str,
        embedding: EmbeddingModels | None = None,
        is_allowed_address: Callable[[str], bool] = is_public,
        **changes: Any,
    ) -> Callable[[], Awaitable[None]]:
        values = {"ingest_port": 0, "shutdown_grace": 5, "ingest_retry_seconds": 0.05, **changes}
        settings = Settings(nats_url=nats_url, retriever_target=target, **values)
        client = await nats.connect(nats_url, "worker")
        stop = asyncio.Event()
        models = embedding or EmbeddingModels([EmbeddingModel.of(HashingEmbedder(dimension=64))])
        task = asyncio.create_task(work(settings, stop, client, models, is_allowed_address=is_allowed_address))
        running.append((stop, task, client))

        async def end() -> None:
            stop.set()
            await task

        return end

    yield run
    for stop, task, client in running:
        stop.set()
        await task
        await client.close()


@dataclasses.dataclass
class Bad:
    """A file that cannot be ingested."""

    name: str
    content: bytes
    reason: str
    message: str


@pytest.fixture
def bad_files(make_pdf: Callable[..., bytes], scanned_pdf: bytes, png: bytes) -> list[Bad]:
    """Return a file for each kind of refusal, with the reason and a word of the message."""
    pdf = make_pdf("A page.", "Another page.")
    unreadable, unsupported = "UNREADABLE_DOCUMENT", "UNSUPPORTED_MEDIA"
    return [
        Bad("locked.pdf", make_pdf("secret", password="open sesame"), unreadable, "encrypted"),
        Bad("torn.pdf", pdf[: len(pdf) // 2], unreadable, "truncated"),
        Bad("damaged.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 20 + b"\n%%EOF\n", unreadable, "damaged"),
        Bad("empty.md", b"", unreadable, "empty"),
        Bad("blank.txt", b" \n\n\t ", unreadable, "no text"),
        Bad("blank.csv", b",,\n,,\n", unreadable, "no text"),
        Bad("picture.pdf", png, unreadable, "is a picture"),
        Bad("letter.pdf", b"Dear Sir, this is no PDF.", unreadable, "plain text"),
        Bad("binary.md", bytes(range(256)) * 8, unreadable, "not text"),
        Bad("paper.md", pdf, unreadable, "is a PDF"),
        Bad("scan.pdf", scanned_pdf, unreadable, "no text: its pages are scanned images"),
        Bad("nul.txt", b"a little text\x00with a hole", unreadable, "binary"),
        Bad("picture.png", png, unsupported, "is a picture"),
        Bad("torn.zip", b"PK\x03\x04" + bytes(60), unreadable, "truncated"),
        Bad("torn.docx", b"PK\x03\x04" + bytes(60), unreadable, "truncated"),
        Bad("letter.rtf", b"Dear Sir, this is no RTF.", unreadable, "plain text"),
    ]


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Send logs to the output that pytest captures, with plain stack traces."""
    before = structlog.get_config()
    plain: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(),
    ]
    structlog.configure(processors=plain, logger_factory=structlog.PrintLoggerFactory())
    yield
    structlog.configure(**before)

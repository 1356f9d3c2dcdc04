"""What the ingest service can be told."""

from pathlib import Path

from pydantic import Field
from servicekit.allowed_urls import UrlPatterns
from servicekit.original_settings import OriginalSettings
from servicekit.settings import GrpcServiceSettings
from servicekit.stream_room import STREAM_BYTES


class Settings(OriginalSettings, GrpcServiceSettings):
    """Settings of a worker; variables begin with ``CAUSEWAY_``."""

    ingest_port: int = Field(50054, ge=0, le=65535, description="Port of the health checks; 0 takes a free one.")
    nats_url: str = Field("nats://127.0.0.1:4222", description="NATS server with the jobs.")
    nats_replicas: int = Field(1, ge=1, le=5, description="Copies of what NATS stores; 3 in production.")
    nats_stream_bytes: int = Field(
        STREAM_BYTES,
        ge=1024**2,
        description="Most bytes of each of NATS' streams, but for documents and pictures, whose bound is the disk. "
        "It sets them aside at once, about 5 times as many in all. For gateway and workers alike.",
    )
    retriever_target: str = Field("127.0.0.1:50051", description="gRPC target of the retriever.")
    embeddings_file: Path | None = Field(
        None,
        description="YAML file of embedding models (docs/embeddings.md), the retriever's; none: the bundled one.",
    )
    model_cache: Path | None = Field(
        None, description="Where the bundled embedding model is; none: the user's cache."
    )

    ingest_jobs: int = Field(2, ge=1, le=64, description="Jobs at once.")
    ingest_embedding_threads: int = Field(2, ge=1, le=64, description="Texts that are embedded at the same time.")
    ingest_max_attempts: int = Field(5, ge=1, le=100, description="Failed attempts until a job is given up.")
    ingest_retry_seconds: float = Field(2.0, gt=0, description="Wait before the second attempt; doubles with each.")

    ingest_outage_seconds: float = Field(
        86_400.0,
        gt=0,
        description="Seconds that a job waits for something that is away (the retriever, an embedding server); no "
        "attempt counts meanwhile. Then it is given up.",
    )

    ingest_urls: UrlPatterns = Field(
        [],
        description="Hosts that documents may be fetched from, as JSON: `docs.example.org`, `*.example.org`, `*`, "
        "with `:8443` for another port; none: URLs are refused. For gateway and workers alike.",
    )
    ingest_url_seconds: float = Field(
        60.0, gt=0, description="Longest time that fetching a document from its URL may take."
    )
    ingest_max_bytes: int = Field(512 * 1024**2, ge=1, description="Largest original, in bytes.")
    ingest_max_pages: int = Field(5000, ge=1, description="Most pages of a document.")
    ingest_max_pictures: int = Field(
        500, ge=0, description="Most pages of a document of which pictures are made, where an upload asks for them."
    )
    ingest_max_characters: int = Field(
        20_000_000, ge=1, description="Most characters of a document's text. For gateway and workers alike."
    )
    ingest_max_chunks: int = Field(50_000, ge=1, description="Most passages of a document.")
    ingest_max_members: int = Field(
        1000,
        ge=0,
        description="Most files of an archive or attachments of a mail, at any depth; 0 unpacks none.",
    )
    ingest_parse_seconds: float = Field(120.0, gt=0, description="Longest time that reading a document may take.")
    ingest_parse_memory: int = Field(
        1024**3, ge=256 * 1024**2, description="Most memory that reading a document may take, in bytes."
    )
    ingest_ocr_python: Path | None = Field(
        None,
        description="Python of an environment with `requirements/ocr.txt`, which recognises text in scanned pages "
        "and pictures (docs/ingest.md); none: they are not read.",
    )
    ingest_ocr_seconds: float = Field(
        60.0, gt=0, description="Longest time that recognising the text of one page or picture may take."
    )
    ingest_chunk_tokens: int = Field(200, ge=16, description="Most tokens of a passage.")
    ingest_chunk_overlap: int = Field(30, ge=0, description="Most tokens that a passage repeats of the one before.")

"""The settings of the ingest service."""

from pathlib import Path

from pydantic import Field
from servicekit.allowed_urls import UrlPatterns
from servicekit.original_settings import OriginalSettings
from servicekit.settings import GrpcServiceSettings
from servicekit.stream_limits import STREAM_BYTES


class Settings(OriginalSettings, GrpcServiceSettings):
    """The settings of a worker, from environment variables with the prefix ``CAUSEWAY_``."""

    ingest_port: int = Field(50054, ge=0, le=65535, description="Port of the health checks; 0 selects a free port.")
    nats_url: str = Field("nats://127.0.0.1:4222", min_length=1, description="URL of NATS.")
    nats_replicas: int = Field(
        1, ge=1, le=5, description="Number of replicas of each NATS stream and bucket; 3 in production."
    )
    nats_stream_bytes: int = Field(
        STREAM_BYTES,
        ge=1024**2,
        description="Maximum bytes of each of these NATS streams: waiting jobs, states of jobs, chat history, "
        "usage, audit. NATS reserves these bytes when it creates a stream, in total about 5 times this value. "
        "A changed value applies to new streams, and to the existing streams of usage and audit; the other "
        "existing streams keep their size. Only the disk limits the originals of documents and the pictures of "
        "pages. Set the same value for gateway and workers.",
    )
    retriever_target: str = Field("127.0.0.1:50051", description="gRPC target of the retriever.")
    embeddings_file: Path | None = Field(
        None,
        description="YAML file of embedding models (docs/embeddings.md), the same for retriever and ingest. Unset: "
        "the bundled model, and the model of `make multilingual` if it is built.",
    )
    model_cache: Path | None = Field(
        None,
        description="Directory of the local embedding models, which `make setup` and `make multilingual` build. "
        "Unset: the user's cache directory.",
    )

    ingest_jobs: int = Field(
        2, ge=1, le=64, description="Maximum number of jobs that the worker runs concurrently."
    )
    ingest_embedding_threads: int = Field(
        2,
        ge=1,
        le=64,
        description="Number of threads of each local embedding model: the texts that it embeds concurrently.",
    )
    ingest_max_attempts: int = Field(
        5, ge=1, le=100, description="Number of failed attempts after which the worker gives a job up."
    )
    ingest_retry_seconds: float = Field(
        2.0, gt=0, description="Seconds before the second attempt; the delay doubles with each further attempt."
    )

    ingest_outage_seconds: float = Field(
        86_400.0,
        gt=0,
        description="Seconds that a job waits for an unavailable dependency (the retriever, an embedding server) "
        "before the worker gives the job up. Attempts during this time do not count as failed attempts.",
    )

    ingest_urls: UrlPatterns = Field(
        [],
        description="Hosts from which documents may be fetched, as a JSON array: `docs.example.org`, "
        "`*.example.org`, `*`, with `:8443` for another port. Empty: URLs are refused. "
        "Set the same value for gateway and workers.",
    )
    ingest_url_seconds: float = Field(
        60.0, gt=0, description="Maximum time in seconds to fetch a document from its URL."
    )
    ingest_max_bytes: int = Field(512 * 1024**2, ge=1, description="Maximum size of an original in bytes.")
    ingest_max_pages: int = Field(5000, ge=1, description="Maximum number of pages of a document.")
    ingest_max_pictures: int = Field(
        500,
        ge=0,
        description="Maximum number of a document's pages that get pictures, if the upload requests pictures.",
    )
    ingest_max_characters: int = Field(
        20_000_000,
        ge=1,
        description="Maximum number of characters of a document. Set the same value for gateway and workers.",
    )
    ingest_max_chunks: int = Field(50_000, ge=1, description="Maximum number of passages of a document.")
    ingest_max_members: int = Field(
        1000,
        ge=0,
        description="Maximum number of files in an archive or a mail, at any depth; 0: no unpacking.",
    )
    ingest_parse_seconds: float = Field(120.0, gt=0, description="Maximum time in seconds to parse a document.")
    ingest_parse_memory: int = Field(
        1024**3, ge=256 * 1024**2, description="Maximum memory in bytes to parse a document."
    )
    ingest_ocr_python: Path | None = Field(
        None,
        description="Python interpreter of an environment with the packages of `requirements/ocr.txt`, which "
        "recognises text in scanned pages and pictures (docs/ingest.md). Unset: these are not read.",
    )
    ingest_ocr_seconds: float = Field(
        60.0, gt=0, description="Maximum time in seconds to recognise the text of one page or picture."
    )
    ingest_chunk_tokens: int = Field(
        200, ge=16, description="Maximum number of tokens of a passage, for indexes without a setting of their own."
    )
    ingest_chunk_overlap: int = Field(
        30,
        ge=0,
        description="Maximum number of tokens that a passage repeats of the previous one, for indexes without a "
        "setting of their own.",
    )

"""What the gateway can be told."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from servicekit.allowed_urls import UrlPatterns
from servicekit.original_settings import OriginalSettings
from servicekit.stream_room import STREAM_BYTES

from gateway.identity.settings import IdentitySettings

MEBI = 1024 * 1024

_CREDENTIALS = frozenset(("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"))


class Settings(OriginalSettings, IdentitySettings):
    """The gateway's settings; see also `IdentitySettings` and `ServiceSettings`."""

    gateway_port: int = Field(8080, ge=0, le=65535, description="Port of the HTTP server.")
    public_path: str = Field(
        "",
        max_length=200,
        pattern=r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$",
        description="Path below which a proxy offers the gateway, such as `/causeway`; the proxy takes it off "
        "(docs/deploy.md). Empty: the root.",
    )
    public_url: str = Field(
        "",
        max_length=500,
        pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~-]+)*)?$",
        description="Where clients find the gateway, with the path of CAUSEWAY_PUBLIC_PATH and without a slash at "
        "its end, such as `https://rag.example.org`: agents get addresses below it (docs/mcp.md), and links in "
        "answers begin with it (docs/frontends.md). Empty: by the host that a request names.",
    )
    console: bool = Field(
        False,
        description="Serve the console, a web page, at / to browsers (docs/console.md). `causeway up` does where "
        "it was built.",
    )
    detector_health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the guardrails orchestrator's health API, /health and /info; none: it is not served.",
    )
    retriever_target: str = Field("127.0.0.1:50051", description="gRPC target of the retriever.")
    generator_target: str = Field("127.0.0.1:50052", description="gRPC target of the generator.")
    guardrails_target: str = Field("127.0.0.1:50053", description="gRPC target of the guardrails.")
    nats_url: str = Field("nats://127.0.0.1:4222", description="Where NATS is.")
    nats_replicas: int = Field(1, ge=1, le=5, description="Copies of everything stored in NATS.")
    nats_stream_bytes: int = Field(
        STREAM_BYTES,
        ge=1024**2,
        description="Most bytes of each of NATS' streams, but for documents and pictures, whose bound is the disk. "
        "It sets them aside at once, about 5 times as many in all. For gateway and workers alike.",
    )
    usage_bytes: int | None = Field(
        None,
        ge=1024**2,
        description="Most bytes of the records of usage (docs/usage.md says how many a year needs); none: as many "
        "as CAUSEWAY_NATS_STREAM_BYTES.",
    )
    audit_bytes: int | None = Field(
        None, ge=1024**2, description="Most bytes of the records of the audit; none: likewise."
    )
    memory_hours: float = Field(
        24.0,
        gt=0,
        description="Hours that a session is remembered after its last turn, where a profile has `memory`.",
    )
    history_days: float = Field(
        365.0, gt=0, description="Days that a conversation is kept in the history after it was last saved."
    )
    responses: Literal["off", "requested", "default"] = Field(
        "default",
        description="Which responses of /v1/responses are stored where a profile says nothing: none, those whose "
        "requests say `store`, or all that do not say otherwise (docs/responses.md).",
    )
    response_days: float = Field(30.0, gt=0, description="Days that a stored response is kept.")
    responses_per_user: int = Field(
        10_000, gt=0, description="Responses and conversations that are kept of a user; the oldest go."
    )
    response_bytes: int = Field(
        256 * MEBI,
        gt=0,
        description="Most bytes of stored responses, and again of those above 1 MB; NATS sets them aside, and the "
        "oldest go.",
    )
    response_searches: int = Field(
        5,
        ge=0,
        le=20,
        description="Most searches of a model in one response with `file_search`; 0: the platform searches first, "
        "also for a model that calls tools.",
    )
    response_log_bytes: int = Field(
        256 * MEBI,
        gt=0,
        description="Most bytes of the events of stored responses (docs/responses.md); NATS sets them aside, "
        "and the oldest go.",
    )
    response_logs_per_tenant: int = Field(
        50_000, gt=0, description="Responses of a tenant whose events are kept; the oldest go."
    )
    background_timeout: float = Field(
        3600.0,
        gt=0,
        description="Seconds that a response may take in the background (docs/responses.md).",
    )
    background_answers: int = Field(
        32, gt=0, description="Responses that a gateway answers in the background at once; the others wait."
    )
    background_per_tenant: int = Field(
        100, gt=0, description="Responses of a tenant that wait or run in the background; more get a 429."
    )
    record_days: float = Field(365.0, gt=0, description="Most days that records of usage and audit are kept.")
    prices_file: Path | None = Field(
        None, description="YAML file of what models' tokens cost (docs/usage.md); read again when it changes."
    )
    content_cache_bytes: int = Field(
        512 * MEBI, gt=0, description="Room on the disk for originals of documents that are being read."
    )
    default_index: str = Field(
        "default", description="Index that a chat searches when it names none; empty: it searches nothing."
    )
    frontends_file: Path | None = Field(
        None, description="YAML file of front end profiles (docs/frontends.md); read again when it changes."
    )
    policy_file: Path | None = Field(
        None, description="YAML file of detectors that every request goes through; read again when it changes."
    )
    detector_headers: str = Field(
        "",
        pattern=r"^ *([A-Za-z0-9-]+ *(, *[A-Za-z0-9-]+ *)*)?$",
        description="Headers of requests that detectors may get, with commas between them; each remote detector "
        "gets those that its file allows it.",
    )
    blocked_message: str = Field(
        "The answer was withheld because it contains something that may not be shown.",
        description="Stands for an answer that the detectors stopped.",
    )
    similarity_threshold: float = Field(
        0.30,
        ge=-1,
        le=1,
        description="Least cosine similarity of a passage to the question, where /v1/chat/completions names an "
        "index. It belongs to the embedding model; -1 lets everything through.",
    )
    node_token_approximation: int = Field(
        500, ge=1, description="Tokens that a passage is taken to have before it is known."
    )
    answer_timeout: float = Field(120.0, gt=0, description="Seconds that a whole answer may take.")
    upload_timeout: float = Field(60.0, gt=0, description="Seconds that handing over an upload may take.")
    index_timeout: float = Field(
        300.0, gt=0, description="Seconds that POST /index waits for its documents; then it answers with the job."
    )
    max_body_bytes: int = Field(4 * MEBI, gt=0, description="Largest body of a request.")
    ingest_urls: UrlPatterns = Field(
        [],
        description="Hosts that documents may be fetched from, as JSON: `docs.example.org`, `*.example.org`, `*`, "
        "with `:8443` for another port; none: URLs are refused. For gateway and workers alike.",
    )
    max_upload_bytes: int = Field(128 * MEBI, gt=0, description="Largest body of an upload.")
    max_spool_bytes: int = Field(
        1536 * MEBI,
        gt=0,
        description="Bytes on the disk for all uploads at once, each of which has twice its size set aside; more "
        "are refused with 429.",
    )
    ingest_max_characters: int = Field(
        20_000_000, ge=1, description="Most characters of a document's text. For gateway and workers alike."
    )
    body_pause: float = Field(
        30.0, gt=0, description="Seconds that may pass between two pieces of a body that comes, or that is read."
    )
    min_body_rate: int = Field(
        500,
        gt=0,
        description="Bytes per second that a body must come with on average; the first CAUSEWAY_BODY_PAUSE seconds "
        "are free.",
    )
    max_jobs: int = Field(100_000, gt=0, description="Jobs that may wait; more uploads are refused with 503.")
    max_tenant_jobs: int = Field(
        20_000, gt=0, description="Jobs of one tenant that may wait; more uploads are refused with 429."
    )
    watch_timeout: float = Field(
        300.0, gt=0, description="Seconds that a stream of a job's events may last; clients go on with another one."
    )
    max_header_bytes: int = Field(32 * 1024, ge=1024, description="Largest request line with its headers.")
    max_headers: int = Field(100, ge=10, description="Most headers of a request.")
    header_timeout: float = Field(30.0, gt=0, description="Seconds that a request's headers may take to come.")
    idle_timeout: float = Field(
        75.0,
        gt=0,
        description="Seconds that a connection without a request stays open. It must be longer than the proxies in "
        "front of the gateway keep theirs (docs/deploy.md).",
    )
    max_connections: int = Field(
        10_000,
        gt=0,
        description="Open connections of clients. One more closes the one that has been idle for the longest "
        "time; where none is idle, only health and metrics are answered.",
    )
    stream_heartbeat: float = Field(
        15.0, gt=0, description="Seconds of silence after which a stream of server-sent events gets a comment."
    )
    max_messages: int = Field(1000, gt=0, description="Most messages of a chat request.")
    max_answer_tokens: int | None = Field(
        None, gt=0, description="Longest answer that a request may ask for; none: what the model can."
    )
    max_requests: int = Field(2048, gt=0, description="Requests at once; more are refused with 503.")
    max_answers: int = Field(
        1024,
        gt=0,
        description="Answers at once; a quarter as many wait, more are refused with 503 (docs/quotas.md).",
    )
    answer_wait: float = Field(
        2.0, ge=0, description="Seconds that a request may wait for its turn to be answered."
    )
    quotas_file: Path | None = Field(
        None,
        description="YAML file of what tenants, API keys and users may use (docs/quotas.md); read again when it "
        "changes.",
    )

    @field_validator("detector_headers")
    @classmethod
    def _no_credentials(cls, headers: str) -> str:
        for name in headers.split(","):
            if name.strip().lower() in _CREDENTIALS:
                raise ValueError(f"{name.strip()} holds what callers prove themselves by; no detector may get that")
        return headers

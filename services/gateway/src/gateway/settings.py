"""The settings of the gateway."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from servicekit.allowed_urls import UrlPatterns
from servicekit.original_settings import OriginalSettings
from servicekit.stream_limits import RESPONSE_BYTES, RESPONSE_LOG_BYTES, STREAM_BYTES

from gateway.frontends.profiles import BLOCKED_MESSAGE
from gateway.identity.settings import IdentitySettings

MEBI = 1024 * 1024

_CREDENTIALS = frozenset(("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"))


class Settings(OriginalSettings, IdentitySettings):
    """The gateway's settings; see also `OriginalSettings`, `IdentitySettings` and `ServiceSettings`."""

    gateway_port: int = Field(8080, ge=0, le=65535, description="Port of the HTTP server.")
    public_path: str = Field(
        "",
        max_length=200,
        pattern=r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$",
        description="Path below which a proxy serves the gateway, such as `/causeway`; the proxy removes it "
        "(docs/proxies.md). Empty: the root.",
    )
    public_url: str = Field(
        "",
        max_length=500,
        pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~-]+)*)?$",
        description="Public address of the gateway, with the path of CAUSEWAY_PUBLIC_PATH and without a slash at "
        "its end, such as `https://rag.example.org`. Agents get addresses below it (docs/mcp.md), and links in "
        "answers begin with it (docs/frontends.md). Empty: the gateway uses the host of the request.",
    )
    console: bool = Field(
        False,
        description="Serve the console, a web page, at / to browsers (docs/console.md). `causeway up` sets it if "
        "the console was built.",
    )
    detector_health_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the guardrails orchestrator's health API, /health and /info. Unset: not served.",
    )
    retriever_target: str = Field("127.0.0.1:50051", description="gRPC target of the retriever.")
    generator_target: str = Field("127.0.0.1:50052", description="gRPC target of the generator.")
    guardrails_target: str = Field("127.0.0.1:50053", description="gRPC target of the guardrails service.")
    guardrails_in_process: bool = Field(
        True,
        description="Run a policy's pattern detectors in the gateway, which saves CPU time (docs/guardrails.md). "
        "The gateway does this only while the guardrails service has the same release, built with the same version "
        "of Python. False: the service runs all detectors.",
    )
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
    usage_bytes: int | None = Field(
        None,
        ge=1024**2,
        description="Maximum bytes of the usage records (docs/usage.md shows how to calculate them). Unset: the "
        "value of CAUSEWAY_NATS_STREAM_BYTES.",
    )
    audit_bytes: int | None = Field(
        None,
        ge=1024**2,
        description="Maximum bytes of the audit records. Unset: the value of CAUSEWAY_NATS_STREAM_BYTES.",
    )
    memory_hours: float = Field(
        24.0,
        gt=0,
        description="Hours that a session is stored after its last turn, if the gateway remembers sessions "
        "(docs/frontends.md).",
    )
    history_days: float = Field(
        365.0, gt=0, description="Days that a conversation stays in the history after it was last saved."
    )
    responses: Literal["off", "requested", "default"] = Field(
        "default",
        description="Which responses of /v1/responses are stored, unless the profile says otherwise "
        "(docs/responses.md). `off`: none; `requested`: those with `store: true` in the request; `default`: all "
        "except those with `store: false`.",
    )
    response_days: float = Field(30.0, gt=0, description="Days until a stored response is deleted.")
    responses_per_user: int = Field(
        10_000,
        gt=0,
        description="Maximum number of stored responses and conversations of a user; the oldest are deleted.",
    )
    response_bytes: int = Field(
        RESPONSE_BYTES,
        gt=0,
        description="Maximum bytes of all stored responses of up to 1 MB each. All larger responses together have "
        "the same limit. NATS reserves both amounts, and deletes the oldest responses at a limit.",
    )
    response_log_bytes: int = Field(
        RESPONSE_LOG_BYTES,
        gt=0,
        description="Maximum bytes of the events of stored responses (docs/responses.md); NATS reserves them, "
        "and deletes the oldest.",
    )
    response_logs_per_tenant: int = Field(
        50_000,
        gt=0,
        description="Maximum number of responses of a tenant whose events are stored; the oldest are deleted.",
    )
    background_timeout: float = Field(
        3600.0,
        gt=0,
        description="Maximum seconds of a background response (docs/responses.md).",
    )
    background_answers: int = Field(
        32, gt=0, description="Maximum number of concurrent background responses of a gateway; the others wait."
    )
    background_per_tenant: int = Field(
        100,
        gt=0,
        description="Maximum number of waiting and running background responses of a tenant; more are refused "
        "with 429.",
    )
    record_days: float = Field(365.0, gt=0, description="Maximum days that usage and audit records are stored.")
    prices_file: Path | None = Field(
        None, description="YAML file of the prices of tokens (docs/usage.md); reloaded when it changes."
    )
    content_cache_bytes: int = Field(
        512 * MEBI, gt=0, description="Disk space in bytes for the cache of the originals that clients read."
    )
    default_index: str = Field(
        "default",
        description="Index that a request searches if neither the request nor its front end profile names one. "
        "Empty: no search. Requests of OpenAI's clients search only an index that they or their profile names "
        "(docs/frontends.md).",
    )
    frontends_file: Path | None = Field(
        None, description="YAML file of front end profiles (docs/frontends.md); reloaded when it changes."
    )
    policy_file: Path | None = Field(
        None, description="YAML file of detectors that judge every request; reloaded when it changes."
    )
    detector_headers: str = Field(
        "",
        pattern=r"^ *([A-Za-z0-9-]+ *(, *[A-Za-z0-9-]+ *)*)?$",
        description="Request headers that the gateway may pass to detectors, separated by commas. Each remote "
        "detector gets only those that `headers` in the file of detectors also allow (docs/guardrails.md).",
    )
    blocked_message: str = Field(
        BLOCKED_MESSAGE,
        description="Message that replaces a blocked answer.",
    )
    similarity_threshold: float = Field(
        0.30,
        ge=-1,
        le=1,
        description="Minimum cosine similarity of a passage to the question, for requests of "
        "/v1/chat/completions with an index. The right value depends on the embedding model; -1 accepts every "
        "passage.",
    )
    node_token_approximation: int = Field(
        500,
        ge=1,
        description="Assumed number of tokens of a passage. It determines how many passages the gateway fetches, "
        "and the minimum number of tokens for passages (docs/ragengine.md).",
    )
    answer_timeout: float = Field(120.0, gt=0, description="Maximum seconds of a whole answer.")
    upload_timeout: float = Field(
        60.0,
        gt=0,
        description="Maximum seconds to store a received upload and to queue its jobs. After this time the request "
        "fails, and the client may repeat it. Only `POST /upload` also waits for the end of its job within this "
        "time; if the job has not ended, it responds with 202. Raise the value if the store of originals is slow.",
    )
    index_timeout: float = Field(
        300.0,
        gt=0,
        description="Maximum seconds that POST /index and POST /indexes/{index}/documents wait until their "
        "documents are stored. After this time, they respond with the job, which continues.",
    )
    max_body_bytes: int = Field(4 * MEBI, gt=0, description="Maximum bytes of a request's body.")
    ingest_urls: UrlPatterns = Field(
        [],
        description="Hosts from which documents may be fetched, as a JSON array: `docs.example.org`, "
        "`*.example.org`, `*`, with `:8443` for another port. Empty: URLs are refused. Set the same value for "
        "gateway and workers.",
    )
    max_upload_bytes: int = Field(128 * MEBI, gt=0, description="Maximum bytes of an upload's body.")
    max_spool_bytes: int = Field(
        1536 * MEBI,
        gt=0,
        description="Disk space in bytes for all concurrent uploads. An upload reserves twice its size. Further "
        "uploads are refused with 429.",
    )
    ingest_max_characters: int = Field(
        20_000_000,
        ge=1,
        description="Maximum number of characters of a document. Set the same value for gateway and workers.",
    )
    body_pause: float = Field(
        30.0, gt=0, description="Maximum seconds between two pieces of a body, received or sent."
    )
    max_jobs: int = Field(
        100_000, gt=0, description="Maximum number of waiting jobs; more uploads are refused with 503."
    )
    max_tenant_jobs: int = Field(
        20_000, gt=0, description="Maximum number of waiting jobs of one tenant; more uploads are refused with 429."
    )
    idle_timeout: float = Field(
        75.0,
        gt=0,
        description="Seconds until the gateway closes a connection without a request. Proxies in front of the "
        "gateway must close idle connections earlier (docs/proxies.md).",
    )
    max_connections: int = Field(
        10_000,
        gt=0,
        description="Maximum number of open connections of clients. A further connection replaces the connection "
        "that has been idle longest. If none is idle, the new connection can only read health and metrics.",
    )
    stream_heartbeat: float = Field(
        15.0,
        gt=0,
        description="Seconds without an event after which the gateway sends a comment on a stream of server-sent "
        "events, or an empty line on a stream of JSON lines.",
    )
    max_messages: int = Field(1000, gt=0, description="Maximum number of messages of a chat request.")
    max_answer_tokens: int | None = Field(
        None,
        gt=0,
        description="Maximum number of answer tokens that a request may set. Unset: the limit of the model.",
    )
    max_requests: int = Field(
        2048, gt=0, description="Maximum number of concurrent requests; more are refused with 503."
    )
    max_answers: int = Field(
        1024,
        gt=0,
        description="Maximum number of concurrent answers. A quarter of this number of requests can wait. More are "
        "refused with 503 (docs/quotas.md).",
    )
    answer_wait: float = Field(
        2.0,
        ge=0,
        description="Maximum seconds that a request waits for one of the CAUSEWAY_MAX_ANSWERS slots.",
    )
    quotas_file: Path | None = Field(
        None,
        description="YAML file of the quotas of tenants, API keys and users (docs/quotas.md); reloaded when it "
        "changes.",
    )

    @field_validator("max_spool_bytes")
    @classmethod
    def _fits_an_upload(cls, spool: int, info: ValidationInfo) -> int:
        upload = info.data.get("max_upload_bytes")  # missing if it is invalid itself
        if upload is not None and spool < 2 * upload:
            raise ValueError(
                "must be at least twice CAUSEWAY_MAX_UPLOAD_BYTES; otherwise the largest uploads never fit"
            )
        return spool

    @field_validator("detector_headers")
    @classmethod
    def _no_credentials(cls, headers: str) -> str:
        for name in headers.split(","):
            if name.strip().lower() in _CREDENTIALS:
                raise ValueError(f"{name.strip()} contains credentials, which detectors must not get; remove it")
        return headers

"""What the gateway can be told."""

from pathlib import Path

from pydantic import Field
from servicekit.settings import ServiceSettings

MEBI = 1024 * 1024


class Settings(ServiceSettings):
    """The gateway's settings; see also `ServiceSettings`."""

    gateway_port: int = Field(8080, ge=0, le=65535, description="Port of the HTTP server.")
    retriever_target: str = Field("127.0.0.1:50051", description="gRPC target of the retriever.")
    generator_target: str = Field("127.0.0.1:50052", description="gRPC target of the generator.")
    guardrails_target: str = Field("127.0.0.1:50053", description="gRPC target of the guardrails.")
    nats_url: str = Field("nats://127.0.0.1:4222", description="Where NATS is.")
    nats_replicas: int = Field(1, ge=1, le=5, description="Copies of everything stored in NATS.")
    history_days: float = Field(
        365.0, gt=0, description="Days that a conversation is kept in the history after it was last saved."
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
    max_upload_bytes: int = Field(128 * MEBI, gt=0, description="Largest body of an upload.")
    body_pause: float = Field(30.0, gt=0, description="Seconds that may pass between two pieces of a body.")
    max_requests: int = Field(2048, gt=0, description="Requests at once; more are refused with 503.")

"""What the guardrails service can be told."""

from pathlib import Path

from pydantic import Field
from servicekit.settings import GrpcServiceSettings


class Settings(GrpcServiceSettings):
    """Settings of the guardrails service."""

    guardrails_port: int = Field(50053, ge=0, le=65535, description="Port to listen on.")
    guardrails_longest_text: int = Field(
        1_000_000, ge=1, description="Characters that one request's texts, or one piece of a stream, may have."
    )
    guardrails_hold_back_limit: int = Field(
        8192,
        ge=1,
        description="Characters that a detector may hold back of a growing text; beyond it it has failed.",
    )
    guardrails_most_detections: int = Field(
        10_000, ge=1, description="Detections in one text; beyond it the detector has failed."
    )
    guardrails_detector_seconds: float = Field(
        1.0, gt=0, description="Time for one text or piece; beyond it the detector has failed."
    )
    guardrails_kept_detectors: int = Field(64, ge=1, description="Detectors that are kept compiled.")
    guardrails_threads: int = Field(
        2, ge=1, description="Threads that judge long texts, and processes that parse texts."
    )
    # Below what the gateway keeps of an answer that waits for its detectors (65,536 characters of each choice).
    guardrails_whole_text_limit: int = Field(
        49_152,
        ge=1,
        description="Characters of a growing text that a detector of whole texts may hold back; beyond it it has "
        "failed.",
    )
    guardrails_model_seconds: float = Field(
        10.0,
        gt=0,
        description="Time for one question to the model that groundedness asks; beyond it it has failed.",
    )
    guardrails_pii_python: Path | None = Field(
        None,
        description="Python of an environment with `requirements/pii.txt`, for the detector `pii`; none: there is "
        "no such detector.",
    )
    model_cache: Path | None = Field(None, description="Directory of the built embedding model.")
    guardrails_detectors_file: Path | None = Field(
        None, description="YAML file of remote detectors; read again when it changes."
    )
    guardrails_connect_seconds: float = Field(
        2.0, gt=0, description="Time to connect to a remote detector's server."
    )
    guardrails_api_port: int | None = Field(
        None, ge=0, le=65535, description="Port to serve our detectors on, over the detector API; none: it is not."
    )
    guardrails_policy_file: Path | None = Field(
        None, description="YAML file of the RAG engine's output guardrails; read again when it changes."
    )

"""The settings of the guardrails service."""

from pathlib import Path

from pydantic import Field
from servicekit.settings import GrpcServiceSettings


class Settings(GrpcServiceSettings):
    """The settings of the guardrails service; the variables begin with ``CAUSEWAY_``."""

    guardrails_port: int = Field(50053, ge=0, le=65535, description="Port to listen on.")
    guardrails_longest_text: int = Field(
        1_000_000, ge=1, description="Maximum characters of one request's texts, or of one piece of a stream."
    )
    guardrails_hold_back_limit: int = Field(
        8192,
        ge=1,
        # The gateway stops reading from the model above 65,536 held characters. With a limit within one piece
        # (16,384) of that number or above it, the answer would stall.
        le=49_152,
        description="Maximum characters of a growing text that a detector may hold back. Above this, the detector "
        "fails.",
    )
    guardrails_detector_seconds: float = Field(
        1.0,
        gt=0,
        description="Maximum seconds of a detector for one text or piece. After that, the detector fails.",
    )
    guardrails_threads: int = Field(
        2, ge=1, description="Number of threads that judge long texts, and of processes that parse texts."
    )
    guardrails_model_seconds: float = Field(
        10.0,
        gt=0,
        description="Maximum seconds of one request to a model. After that, the detector fails.",
    )
    guardrails_pii_python: Path | None = Field(
        None,
        description="Path of the Python interpreter of an environment in which `requirements/pii.txt` is "
        "installed. The detector `pii` runs in it. Unset: the service does not offer `pii`.",
    )
    model_cache: Path | None = Field(
        None,
        description="Directory of the local embedding models, which `make setup` and `make multilingual` build. "
        "Unset: the user's cache directory.",
    )
    guardrails_detectors_file: Path | None = Field(
        None, description="YAML file of remote detectors; reloaded when it changes."
    )
    guardrails_api_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of the detector API, for other systems. Unset: the API is disabled.",
    )
    guardrails_policy_file: Path | None = Field(
        None,
        description="YAML file of output guardrails, as for KAITO's RAG engine; reloaded when it changes.",
    )

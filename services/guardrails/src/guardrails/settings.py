"""What the guardrails service can be told."""

from pydantic import Field
from servicekit.settings import ServiceSettings


class Settings(ServiceSettings):
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
    guardrails_threads: int = Field(2, ge=1, description="Threads that judge long texts.")

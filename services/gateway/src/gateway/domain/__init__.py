"""What the gateway speaks of inside: a turn of a conversation, and the events of its answer.

A failure is no event: it is raised (`servicekit.errors`), and the dialect renders it as a status or as a last line.
No protocol's words and no transport's types: dialects turn requests into a `Turn` and events into their own JSON.
"""

from gateway.domain.detection import (
    Action,
    Chunking,
    Detector,
    DetectorFailure,
    DetectorInfo,
    DetectorKind,
    Detectors,
    Direction,
    Finding,
    InputScope,
    Policy,
    Surroundings,
    Verdict,
)
from gateway.domain.events import (
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    Done,
    Event,
    Finish,
    FollowUps,
    Note,
    Start,
    Step,
    Subject,
    Usage,
)
from gateway.domain.models import (
    Model,
    TokenCounts,
)
from gateway.domain.passages import (
    Found,
    Passage,
    Picture,
    Selection,
)
from gateway.domain.turn import (
    Message,
    PromptStyle,
    Retrieval,
    RetrievalMode,
    Tuning,
    Turn,
)

__all__ = [
    "Action",
    "Batch",
    "Chunk",
    "Chunking",
    "Completion",
    "Context",
    "Delta",
    "Detections",
    "Detector",
    "DetectorFailure",
    "DetectorInfo",
    "DetectorKind",
    "Detectors",
    "Direction",
    "Done",
    "Event",
    "Finding",
    "Finish",
    "FollowUps",
    "Found",
    "InputScope",
    "Message",
    "Model",
    "Note",
    "Passage",
    "Picture",
    "Policy",
    "PromptStyle",
    "Retrieval",
    "RetrievalMode",
    "Selection",
    "Start",
    "Step",
    "Subject",
    "Surroundings",
    "TokenCounts",
    "Tuning",
    "Turn",
    "Usage",
    "Verdict",
]

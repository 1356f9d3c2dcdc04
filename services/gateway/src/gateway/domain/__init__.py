"""What the gateway speaks of inside: a turn of a conversation, and the events of its answer.

A failure is no event: it is raised (`servicekit.errors`), and the dialect renders it as a status or as a last line.
No protocol's words and no transport's types: dialects turn requests into a `Turn` and events into their own JSON.
"""

from gateway.domain.detection import (
    Action,
    Detector,
    DetectorFailure,
    Detectors,
    Direction,
    Finding,
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
    Passage,
    Picture,
    Selection,
)
from gateway.domain.turn import (
    Message,
    PromptStyle,
    Retrieval,
    RetrievalMode,
    Turn,
)

__all__ = [
    "Action",
    "Batch",
    "Chunk",
    "Completion",
    "Context",
    "Delta",
    "Detections",
    "Detector",
    "DetectorFailure",
    "Detectors",
    "Direction",
    "Done",
    "Event",
    "Finding",
    "Finish",
    "FollowUps",
    "Message",
    "Model",
    "Note",
    "Passage",
    "Picture",
    "PromptStyle",
    "Retrieval",
    "RetrievalMode",
    "Selection",
    "Start",
    "Step",
    "Subject",
    "TokenCounts",
    "Turn",
    "Usage",
    "Verdict",
]

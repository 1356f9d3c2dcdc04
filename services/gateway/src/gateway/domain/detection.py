"""Detectors, and what they find."""

import enum
from dataclasses import dataclass


class Direction(enum.Enum):
    """Where a judged text stands."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class Action(enum.IntEnum):
    """What a finding leads to; the greater is the stricter."""

    REPORT = 1
    REDACT = 2
    BLOCK = 3


@dataclass(frozen=True, slots=True)
class Detector:
    """One detector that a text goes through."""

    detector_id: str
    action: Action
    allow_on_error: bool = False
    params_json: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class Detectors:
    """The detectors of each direction; an empty one costs no call."""

    input: tuple[Detector, ...] = ()
    context: tuple[Detector, ...] = ()
    output: tuple[Detector, ...] = ()

    def __add__(self, more: "Detectors") -> "Detectors":
        """Both; nothing is weakened by adding."""
        return Detectors(self.input + more.input, self.context + more.context, self.output + more.output)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a detector found; ``start`` and ``end`` are code points, None where it is about the whole text."""

    detector_id: str
    detection_type: str
    detection: str
    score: float
    action: Action
    start: int | None = None
    end: int | None = None
    text: str = ""
    replacement: str = ""
    extra_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the detectors say of one text."""

    action: Action | None
    findings: tuple[Finding, ...]
    redacted_text: str


@dataclass(frozen=True, slots=True)
class DetectorFailure:
    """A detector that failed and was passed over."""

    detector_id: str
    message: str

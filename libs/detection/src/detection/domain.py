"""The domain types: detections, actions for detections, and growing texts.

A growing text arrives in pieces, like an answer on a stream. The guardrails judge it while it grows. Positions are
Unicode code points of the text, never bytes or UTF-16 units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Action(IntEnum):
    """The action for a finding; a greater value is stricter."""

    NONE = 0
    REPORT = 1
    REDACT = 2
    BLOCK = 3


class Direction(Enum):
    """Whether a text is a question, a passage or an answer."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class DetectorKind(Enum):
    """The kind of input that a detector accepts; the values are the names of the detector API."""

    CONTENTS = "text_contents"
    CHAT = "text_chat"
    CONTEXT_DOC = "text_context_doc"
    GENERATION = "text_generation"


class OnError(Enum):
    """The effect of a detector's failure."""

    BLOCK = "block"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """The configuration of a detector in a request. ``params`` is a JSON object; empty means ``{}``."""

    detector_id: str
    action: Action = Action.REPORT
    on_error: OnError = OnError.BLOCK
    params: bytes = b""


@dataclass(frozen=True, slots=True)
class DetectionContext:
    """The input of a detector in addition to the texts.

    Attributes:
        direction: Whether the texts are a question, passages or an answer.
        passages: The source passages of the texts; if ``urls`` is true, the URLs of documents.
        prompt: The prompt that the texts answer.
        messages: The conversation as a JSON array; empty if there is no conversation.
        tools: The tools of the conversation as a JSON array; empty if it has no tools.
        headers: The caller's headers, in lower case.
        replies: For each text, a JSON object with the members of its message except the content. The tuple may be
            shorter than the list of texts; then the last texts have no entry.
    """

    direction: Direction = Direction.OUTPUT
    passages: tuple[str, ...] = ()
    urls: bool = False
    prompt: str = ""
    messages: bytes = b""
    tools: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    replies: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class DetectorInfo:
    """An available detector.

    ``params_schema`` is a JSON Schema. See `BuiltIn` for ``library``.
    """

    detector_id: str
    description: str
    params_schema: bytes
    streaming: bool
    kind: DetectorKind = DetectorKind.CONTENTS
    remote: bool = False
    library: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a detector. ``reason`` is a message for the client; it is empty for a healthy detector."""

    healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """One result of a detector.

    ``start`` and ``end`` (exclusive) are both None if the detection refers to the whole text. ``extra`` is a JSON
    object with further members, or empty.
    """

    type: str
    name: str
    text: str = ""
    start: int | None = None
    end: int | None = None
    score: float = 1.0
    extra: bytes = b""


@dataclass(frozen=True, slots=True)
class Finding:
    """A detection and its action.

    If spans to redact overlap, the replacement of the first span replaces their union once. The replacements of the
    other spans are empty.
    """

    detection: Detection
    detector_id: str
    action: Action
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a detector.

    ``message`` is for the client. ``status`` is the HTTP status that describes the failure, for example the status
    of a remote detector's response, or 0.
    ``not_asked`` is true if the detector was not called because the request has no passages to compare the text
    with.
    """

    detector_id: str
    message: str
    status: int = 0
    not_asked: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a whole text. ``redacted_text`` is set only for the action redact."""

    action: Action
    findings: tuple[Finding, ...] = ()
    redacted_text: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of a choice's text.

    The last piece has the ``reply``; see `DetectionContext.replies`. ``auxiliary`` is true if the text is not
    the content of the choice: it contains tool arguments, reasoning or a refusal.
    """

    choice: int
    text: str
    last: bool = False
    reply: bytes = b""
    auxiliary: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a choice: the text up to ``cleared_until`` may be released.

    ``findings`` are the findings that end in the cleared text and that no earlier step contains. For the action
    block, they are the findings that block. After a step with the action block, no more text of any choice may be
    released. ``fully_judged`` is true if the text is complete and the detectors have judged all of it.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...] = ()
    action: Action = Action.NONE
    failures: tuple[Failure, ...] = ()
    fully_judged: bool = False

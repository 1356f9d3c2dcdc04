"""The domain types: detections, the actions that follow from them, and growing texts.

Positions are Unicode code points of the text, never bytes or UTF-16 units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Action(IntEnum):
    """The action that a finding leads to; a greater value is stricter."""

    NONE = 0
    REPORT = 1
    REDACT = 2
    BLOCK = 3


class Direction(Enum):
    """The place of a text in a turn: question, passages or answer."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class DetectorKind(Enum):
    """The kind of input that a detector takes; the values are the names of the detector API."""

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
    """A detector of a request.

    ``params`` is a JSON object; empty means ``{}``.
    """

    detector_id: str
    action: Action = Action.REPORT
    on_error: OnError = OnError.BLOCK
    params: bytes = b""


@dataclass(frozen=True, slots=True)
class DetectionContext:
    """The input of a detector besides the texts.

    Attributes:
        direction: Whether the texts are a question, passages or an answer.
        passages: The sources of the texts; with ``urls``, the addresses of documents.
        prompt: The prompt that the texts answer.
        messages: The conversation as a JSON list; empty if there is no conversation.
        tools: The tools of the conversation as a JSON list; empty if it has no tools.
        headers: The caller's headers, in lower case.
        replies: For each text, a JSON object with the members of its message other than the content. May have
            fewer entries than there are texts.
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

    ``params_schema`` is a JSON Schema. ``library``: see `BuiltIn`.
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
    """The health of a detector; ``reason`` is for the client, and empty for a healthy detector."""

    healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """One result of a detector.

    ``start`` and ``end`` (exclusive) are both absent if the detection is about the whole text. ``extra`` is a JSON
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
    """A detection and the action for it.

    If spans to be redacted overlap, their union is replaced once, by the replacement of the first span. The
    replacements of the other spans are empty.
    """

    detection: Detection
    detector_id: str
    action: Action
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a detector.

    ``message`` is for the client. ``status`` is the status of a remote detector's response, or 0. ``not_asked``:
    the detector was not called, because there was nothing to compare the text with.
    """

    detector_id: str
    message: str
    status: int = 0
    not_asked: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a whole text; ``redacted_text`` is empty unless the action is to redact."""

    action: Action
    findings: tuple[Finding, ...] = ()
    redacted_text: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece to append to a choice's text.

    ``reply`` comes with the last piece, see `DetectionContext.replies`. ``beside``: the text is not the content of
    the answer, but tool arguments or reasoning.
    """

    choice: int
    text: str
    last: bool = False
    reply: bytes = b""
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The position up to which a choice's text may be released, and the findings in the newly released part.

    After the action block, no more text of any choice may be released. ``judged``: the text is complete and was
    judged to its end.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...] = ()
    action: Action = Action.NONE
    failures: tuple[Failure, ...] = ()
    judged: bool = False

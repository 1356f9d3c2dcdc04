"""What the service speaks of: detections, what follows from them, and texts that grow.

Positions are Unicode code points of the text, never bytes and never UTF-16 units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Action(IntEnum):
    """What follows from a finding; the greater is the stricter."""

    NONE = 0
    REPORT = 1
    REDACT = 2
    BLOCK = 3


class Direction(Enum):
    """Where a text stands."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class DetectorKind(Enum):
    """What a detector looks at; the values are the ecosystem's names."""

    CONTENTS = "text_contents"
    CHAT = "text_chat"
    CONTEXT_DOC = "text_context_doc"
    GENERATION = "text_generation"


class OnError(Enum):
    """What follows from a detector's failure."""

    BLOCK = "block"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """A detector as a request asks for it.

    ``params`` is one JSON object; empty means ``{}``.
    """

    detector_id: str
    action: Action = Action.REPORT
    on_error: OnError = OnError.BLOCK
    params: bytes = b""


@dataclass(frozen=True, slots=True)
class DetectionContext:
    """What a detector may look at beside the texts.

    Attributes:
        direction: Whether the texts are a question, passages or an answer.
        passages: What the texts should rest on: texts, or addresses of documents where ``urls``.
        prompt: What the texts answer.
        messages: The conversation, a JSON list; empty: none.
        tools: Its tools, a JSON list; empty: none.
        headers: The caller's headers, in lower case.
        replies: For each text, the members of its message beside the content, a JSON object; may be shorter.
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
    """A detector that can be asked for; ``params_schema`` is a JSON Schema."""

    detector_id: str
    description: str
    params_schema: bytes
    streaming: bool
    kind: DetectorKind = DetectorKind.CONTENTS
    remote: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """How a detector is; ``reason`` is for the client, and empty where it is well."""

    healthy: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """What a detector says.

    ``start`` and ``end`` (after the last) are both absent where it is about the whole text; ``extra`` is a JSON
    object of further members, or empty.
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
    """A detection and what follows from it.

    Where spans to be redacted overlap, their union is replaced once: by the replacement of the first; those of the
    others are empty.
    """

    detection: Detection
    detector_id: str
    action: Action
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A detector that failed; the message is for the client, the status a remote detector's own, or 0.

    ``not_asked``: there was nothing to compare the text with.
    """

    detector_id: str
    message: str
    status: int = 0
    not_asked: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a whole text; ``redacted_text`` is empty unless the action is to redact."""

    action: Action
    findings: tuple[Finding, ...] = ()
    redacted_text: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is appended to a choice's text; ``reply`` comes with the last piece, see `DetectionContext.replies`.

    ``beside``: the text is beside the content of an answer (tool arguments, reasoning).
    """

    choice: int
    text: str
    last: bool = False
    reply: bytes = b""
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a choice's text may be released, and what was found in what is released now.

    With the action block nothing more may be released, of any choice. ``judged``: it is complete, and judged to its
    end.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...] = ()
    action: Action = Action.NONE
    failures: tuple[Failure, ...] = ()
    judged: bool = False

"""Detectors, and what they find."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class Direction(enum.Enum):
    """Where a judged text stands."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class Chunking(enum.Enum):
    """Where a growing text may be cut when it is released."""

    MINIMAL = "minimal"
    SENTENCE = "sentence"
    DETECTORS = "detectors"  # at sentences where a detector judges those, else anywhere


class InputScope(enum.Enum):
    """Which messages of a conversation the input detectors judge.

    ``LAST`` limits only the detectors that the request brings: a request cannot limit those of a policy.
    """

    CONVERSATION = "conversation"  # users' and tools'; only what came since the latest answer stops a request
    ALL = "all"  # the system's, too
    LAST = "last"  # the last one, whoever said it


class Action(enum.IntEnum):
    """What a finding leads to; the greater is the stricter."""

    REPORT = 1
    REDACT = 2
    BLOCK = 3


@dataclass(frozen=True, slots=True)
class Detector:
    """One detector that a text goes through.

    Attributes:
        detector_id: Names it.
        action: What its findings lead to.
        allow_on_error: Its failure does not stop the text.
        params_json: Its parameters, a JSON object.
        requested: The request brings it; else a policy does. It is no part of the detector's identity.
    """

    detector_id: str
    action: Action
    allow_on_error: bool = False
    params_json: bytes = b"{}"
    requested: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Detectors:
    """The detectors of each direction; an empty one costs no call."""

    input: tuple[Detector, ...] = ()
    context: tuple[Detector, ...] = ()
    output: tuple[Detector, ...] = ()

    def __add__(self, more: "Detectors") -> "Detectors":
        """Both; nothing is weakened by adding."""
        return Detectors(self.input + more.input, self.context + more.context, self.output + more.output)

    def as_requested(self) -> "Detectors":
        """Return the same detectors, marked as brought by a request."""
        return Detectors(
            *(
                tuple(replace(each, requested=True) for each in side)
                for side in (self.input, self.context, self.output)
            )
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Detectors that go together, and what stands for what they stop; empty where the policy does not say."""

    detectors: Detectors = field(default_factory=Detectors)
    blocked_message: str = ""


class DetectorKind(enum.Enum):
    """What a detector looks at; the values are the ecosystem's names."""

    CONTENTS = "text_contents"
    CHAT = "text_chat"
    CONTEXT_DOC = "text_context_doc"
    GENERATION = "text_generation"


@dataclass(frozen=True, slots=True)
class DetectorInfo:
    """A detector that can be asked for.

    Attributes:
        detector_id: Names it.
        kind: What it looks at.
        streaming: It can judge a growing text before the text is complete.
        description: What it does, in a sentence.
        params_schema_json: JSON Schema of its parameters.
        remote: It asks another server.
        healthy: It can judge; None where it was not asked.
        reason: Why it cannot, in words for the client.
    """

    detector_id: str
    kind: DetectorKind
    streaming: bool = True
    description: str = ""
    params_schema_json: bytes = b"{}"
    remote: bool = False
    healthy: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DetectionContext:
    """What judged texts stand in; what a detector needs of it and does not get is its failure.

    Attributes:
        passages: What the texts should rest on: texts, or addresses where ``passages_are_urls``.
        prompt: What they answer.
        messages_json: The conversation that they stand in or answer: a JSON list of messages as OpenAI has them.
        tools_json: Its tools: a JSON list; empty means none.
        headers: The caller's headers, in lower case; a detector gets those that its configuration allows.
    """

    passages: tuple[str, ...] = ()
    passages_are_urls: bool = False
    prompt: str = ""
    messages_json: bytes = b""
    tools_json: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a detector found; ``start`` and ``end`` are code points, None where it is about the whole text.

    ``withheld``: clients are not told of it, because it would tell something of what was taken out.
    """

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
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the detectors say of one text."""

    action: Action | None
    findings: tuple[Finding, ...]
    redacted_text: str


@dataclass(frozen=True, slots=True)
class DetectorFailure:
    """A detector that failed.

    Attributes:
        detector_id: Which.
        message: Why, in words for the client.
        status: The HTTP status of a remote one's answer, 504 where it took too long, 0 where there is none.
        not_asked: There was nothing to compare the text with. Of one that only reports nothing follows then.
    """

    detector_id: str
    message: str
    status: int = 0
    not_asked: bool = False

    @property
    def verdict(self) -> str:
        """What records and metrics call it."""
        return "not_asked" if self.not_asked else "error"

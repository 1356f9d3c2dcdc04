"""The types of detectors and of their findings."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Direction(enum.Enum):
    """The place of a judged text in the request or the answer."""

    INPUT = "input"
    CONTEXT = "context"
    OUTPUT = "output"


class Chunking(enum.Enum):
    """The positions at which the guard may divide a growing text when it releases the text."""

    MINIMAL = "minimal"
    SENTENCE = "sentence"
    DETECTORS = "detectors"  # between sentences if a detector judges sentences, otherwise at any position


class InputScope(enum.Enum):
    """The messages of a conversation that the input detectors judge.

    ``LAST`` limits only the detectors that the request names. A request cannot limit the detectors of a policy.
    """

    CONVERSATION = "conversation"  # of users and tools; only messages since the last answer can block a request
    ALL = "all"  # all messages, including system messages
    LAST = "last"  # the last message, of any role


class Action(enum.IntEnum):
    """The consequence of a finding. A greater value is stricter."""

    REPORT = 1
    REDACT = 2
    BLOCK = 3


@dataclass(frozen=True, slots=True)
class Detector:
    """A detector that judges a text.

    Attributes:
        detector_id: The id of the detector.
        action: The consequence of its findings.
        allow_on_error: Whether the text passes if the detector fails.
        params_json: The parameters of the detector, a JSON object.
        requested: Whether the request names the detector. Otherwise a policy names it. The comparison of detectors
            ignores this attribute.
    """

    detector_id: str
    action: Action
    allow_on_error: bool = False
    params_json: bytes = b"{}"
    requested: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Detectors:
    """The detectors of each direction. A direction without detectors causes no call."""

    input: tuple[Detector, ...] = ()
    context: tuple[Detector, ...] = ()
    output: tuple[Detector, ...] = ()

    def __add__(self, more: "Detectors") -> "Detectors":
        """Return the detectors of both operands. The sum is at least as strict as each operand."""
        return Detectors(self.input + more.input, self.context + more.context, self.output + more.output)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: its detectors, and the message that replaces a blocked text. The message may be empty."""

    detectors: Detectors = field(default_factory=Detectors)
    blocked_message: str = ""


class DetectorKind(enum.Enum):
    """The kind of a detector's input. The values are the names in the detector APIs."""

    CONTENTS = "text_contents"
    CHAT = "text_chat"
    CONTEXT_DOC = "text_context_doc"
    GENERATION = "text_generation"


@dataclass(frozen=True, slots=True)
class DetectorInfo:
    """A detector that a request can name.

    Attributes:
        detector_id: The id of the detector.
        kind: The input of the detector.
        streaming: Whether the detector can judge a growing text before the text is complete.
        description: The purpose of the detector, in one sentence.
        params_schema_json: The JSON Schema of its parameters.
        remote: Whether the detector calls another server.
        healthy: Whether the detector can judge. None means that its health was not checked.
        reason: The reason why the detector cannot judge, as a message for the client.
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
    """The context of the judged texts. A detector fails if it needs a part that is missing.

    Attributes:
        passages: The texts of the sources, or the addresses of the sources if ``passages_are_urls`` is set.
        passages_are_urls: Whether ``passages`` contains addresses.
        prompt: The prompt that the texts answer.
        messages_json: The conversation of the texts: a JSON array of messages in OpenAI's format.
        tools_json: The tools of the conversation as a JSON array, or empty without tools.
        headers: The caller's headers, in lower case. A detector receives only the headers that its configuration
            allows.
    """

    passages: tuple[str, ...] = ()
    passages_are_urls: bool = False
    prompt: str = ""
    messages_json: bytes = b""
    tools_json: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a detector.

    ``start`` and ``end`` are offsets in code points. They are None if the finding concerns the whole text. Clients
    do not receive a finding with ``withheld``, because it would reveal part of the redacted text.
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
    """The result of all detectors for one text.

    Attributes:
        action: The strictest action of the findings, or None without a finding.
        findings: The findings.
        redacted_text: The text with the replacements, or empty if the action is not ``REDACT``.
    """

    action: Action | None
    findings: tuple[Finding, ...]
    redacted_text: str


@dataclass(frozen=True, slots=True)
class DetectorFailure:
    """A detector that failed.

    Attributes:
        detector_id: The id of the detector.
        message: The reason, as a message for the client.
        status: The HTTP status that describes the failure, for example the status of a remote detector's response,
            or 504 for a time-out; 0 without a status.
        not_asked: Whether the detector was not called, because the context that it compares with the text is
            missing. The failure of a detector that only reports then has no effect.
    """

    detector_id: str
    message: str
    status: int = 0
    not_asked: bool = False

    @property
    def verdict(self) -> str:
        """Return the name of the failure in records and metrics."""
        return "not_asked" if self.not_asked else "error"

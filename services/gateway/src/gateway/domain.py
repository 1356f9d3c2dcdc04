"""What the gateway speaks of inside: a turn of a conversation, and the events of its answer.

A failure is no event: it is raised (`servicekit.errors`), and the dialect renders it as a status or as a last line.
No protocol's words and no transport's types: dialects turn requests into a `Turn` and events into their own JSON.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from servicekit.principal import Principal


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant``, ``developer`` or ``tool``.
        text: Its text; empty where the content is a list of parts.
        content_json: The list of parts as it came, else empty.
        extra_json: Its other members as one JSON object, else empty.
    """

    role: str
    text: str
    content_json: bytes = b""
    extra_json: bytes = b""


class RetrievalMode(enum.Enum):
    """How passages are searched."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Where and how to look for passages.

    Attributes:
        indexes: Searched together; none means no retrieval.
        top: Most passages; None lets the model's context window decide (`budget.candidates`).
        minimum_score: Passages below are left out.
        minimum_reranker_score: Likewise, by the reranker's score, where one ran.
        semantic_ranker: Have a reranker order what was found.
        semantic_captions: Give the model the best sentences of the passages instead of the whole.
        context_token_ratio: Share of the available tokens that passages may take.
    """

    indexes: tuple[str, ...] = ()
    mode: RetrievalMode = RetrievalMode.HYBRID
    top: int | None = None
    include_category: str = ""
    exclude_category: str = ""
    minimum_score: float | None = None
    minimum_reranker_score: float | None = None
    semantic_ranker: bool = False
    semantic_captions: bool = False
    context_token_ratio: float = 0.5


class PromptStyle(enum.Enum):
    """Where the passages stand in the prompt."""

    SOURCES_AFTER_QUESTION = enum.auto()
    CONTEXT_IN_SYSTEM_MESSAGE = enum.auto()


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
class Turn:
    """What is asked: everything the pipeline needs, nothing of how it was said.

    Attributes:
        history: What was said before, oldest first, system messages included.
        question: The user's words since the last answer; also the search query. Empty where the last word is not
            the user's (a tool's result); such a turn searches nothing.
        parameters_json: Members of an OpenAI request that are for the model (temperature, stop, n, …), one object.
        original_json: The OpenAI request that it came as, less our own keys; empty in other dialects.
        frontend: The profile that it belongs to.
        rewrite: The search query is made from the question and the history, by the model.
        follow_ups: The model is asked for questions that the user may ask next.
        blocked_message: Stands for an answer that the detectors stopped.
        passthrough: ``original_json`` goes to the model as it is, and the rest does not matter.
    """

    principal: Principal
    question: str
    history: tuple[Message, ...] = ()
    model: str = ""
    retrieval: Retrieval = Retrieval()
    style: PromptStyle = PromptStyle.SOURCES_AFTER_QUESTION
    system_prompt: str | None = None
    parameters_json: bytes = b"{}"
    max_tokens: int | None = None
    detectors: Detectors = Detectors()
    original_json: bytes = b""
    frontend: str = "default"
    rewrite: bool = False
    follow_ups: bool = False
    blocked_message: str = ""
    passthrough: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document that was found."""

    id: str
    index: str
    document_id: str
    sourcefile: str
    sourcepage: str
    text: str
    score: float
    page: int = 0
    chunk_number: int = 0
    headings: tuple[str, ...] = ()
    category: str = ""
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    metadata_json: bytes = b"{}"
    dense_score: float | None = None
    sparse_score: float | None = None
    reranker_score: float | None = None
    found_by: str = "both"


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


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the answer and how long it took, in milliseconds."""

    name: str
    duration_ms: float


# --- the events of an answer, in the order they may come ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """What the answer rests on. The first event of every answer that is not a pass-through.

    Attributes:
        query: What was searched for; empty where nothing was.
        passages: What was found and fits the budget, best first.
        prompt: The messages that the model got.
        steps: The steps so far.
    """

    query: str
    passages: tuple[Passage, ...]
    prompt: tuple[Message, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """What the model says of its answer as a whole (``id``, ``created``, ``model``, …), one JSON object.

    May come again with members that were not known before.
    """

    raw_json: bytes = b"{}"


# Structs where one is made for each token: a frozen dataclass takes eight times as long to make.
class Delta(msgspec.Struct, frozen=True, gc=False):
    """The next piece of a choice: of its content, or of what we do not model, or both.

    Attributes:
        choice: Which of the answers that were asked for, from 0.
        text: Content.
        delta_json: Members of the choice's delta beside the content (tool calls, reasoning); an object, or empty.
        choice_json: Members of the choice beside its delta (log probabilities); an object, or empty.
    """

    choice: int
    text: str
    delta_json: bytes = b""
    choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Detections:
    """What detectors found, and which of them failed and were passed over.

    ``item`` is the choice for output, the message's index for input.
    """

    direction: Direction
    item: int
    findings: tuple[Finding, ...]
    failures: tuple[DetectorFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowUps:
    """Questions the user may ask next."""

    questions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens; ``raw_json`` is the model server's own object, where it sends one."""

    prompt_tokens: int
    completion_tokens: int
    raw_json: bytes = b""


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A choice is complete; ``choice_json`` as of `Delta`."""

    choice: int
    reason: str
    choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete, with all its steps. The last event of every answer."""

    steps: tuple[Step, ...]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk of a pass-through, as the model server sent it."""

    raw_json: bytes


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole pass-through answer, as the model server sent it."""

    raw_json: bytes


Event = Context | Start | Delta | Detections | FollowUps | Usage | Finish | Done | Chunk | Completion
Batch = Sequence[Event]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be asked for."""

    name: str
    context_window: int
    owned_by: str
    created: int
    ready: bool


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What a model counts: one number a text, one for the conversation, and its window (0: not known)."""

    texts: tuple[int, ...]
    messages: int
    context_window: int

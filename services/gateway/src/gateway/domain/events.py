"""The events of an answer."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.domain.deltas import Part, members_of, parts_of
from gateway.domain.detection import DetectorFailure, DetectorInfo, Direction, Finding
from gateway.domain.passages import Passage, Picture, Selection
from gateway.domain.turn import Message, Turn


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. ``raw_json`` is the object that the model server sent, or empty."""

    prompt_tokens: int
    completion_tokens: int
    raw_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the answer.

    Attributes:
        name: The name of the step.
        duration_ms: The duration in milliseconds.
        usage: The tokens that a model used for the step, if the `Usage` of the answer does not include them.
        inner: The steps inside the called service, as the service reports them.
        start_ms: The start in milliseconds after the start of the answer, or None if it is not measured. A step
            that ran several times has the start of its first run.
    """

    name: str
    duration_ms: float
    usage: Usage | None = None
    inner: tuple["Step", ...] = ()
    start_ms: float | None = None


class Subject(enum.Enum):
    """The subject of a note."""

    QUERY = "query"
    RESULTS = "results"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Note:
    """A note for diagnosis: the gateway omitted a requested step, or changed it."""

    subject: Subject
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """The context of the answer: the first event of every answer that is not a pass-through.

    Attributes:
        query: The search query, or empty without a search.
        passages: The passages that fit the budget, best first.
        prompt: The messages for the model.
        steps: The steps so far.
        omitted_messages: The number of oldest messages that do not fit the model's context window.
        notes: Notes for diagnosis.
        pictures: Pictures of pages for the model.
        detectors: All known detectors, if the turn names detector kinds.
        checked_turn: The turn after redaction, or None if the detectors blocked the turn.
    """

    query: str
    passages: tuple[Passage, ...]
    prompt: tuple[Message, ...]
    steps: tuple[Step, ...]
    omitted_messages: int = 0
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()
    detectors: tuple[DetectorInfo, ...] = ()
    checked_turn: Turn | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """The members of the whole answer (``id``, ``created``, ``model``, …), one JSON object.

    An answer may have several of these events. Later events contain further members.
    """

    raw_json: bytes = b"{}"


# Delta, Finish and Chunk are structs, because each token creates one. Creating a frozen dataclass takes eight times
# as long.
class Delta(msgspec.Struct, frozen=True, gc=False):
    """The next piece of a choice: content, other members, or both.

    Attributes:
        choice: The number of the choice, from 0.
        text: The next piece of the content.
        delta_json: The members of the choice's delta other than the content, as the model server sent them: an
            object, or empty. `parts` decodes it.
        choice_json: The members of the choice other than its delta (log probabilities): an object, or empty.
    """

    choice: int
    text: str
    delta_json: bytes = b""
    choice_json: bytes = b""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts other than the content.

        Each call decodes the JSON, so that plain text and unused parts cost no decoding.

        Raises:
            Unavailable: The model server sent invalid JSON.
        """
        return parts_of(members_of(self.delta_json)) if self.delta_json else ()


@dataclass(frozen=True, slots=True)
class Detections:
    """The findings of detectors, and the tolerated failures of detectors.

    ``item`` is the number of the choice for output, and the number of the message for input. The offsets in an
    answer count the model's text without its follow-up questions. A finding in another part of an answer has no
    span. ``omitted_paths`` contains the paths of the omitted parts of an answer, which no detector could judge.
    """

    direction: Direction
    item: int
    findings: tuple[Finding, ...]
    failures: tuple[DetectorFailure, ...] = ()
    omitted_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactionBegun:
    """The model begins to summarise the conversation."""


@dataclass(frozen=True, slots=True)
class CompactionDone:
    """The summary that replaces the conversation.

    Attributes:
        summary: The text of the summary.
        summary_only: Whether no answer follows.
    """

    summary: str
    summary_only: bool = False


@dataclass(frozen=True, slots=True)
class SearchBegun:
    """The model starts a search. `SearchDone` follows. The search for an empty query returns no passages."""

    query: str


@dataclass(frozen=True, slots=True)
class SearchDone:
    """The results of a search by the model that the caller may see and no detector blocks."""

    query: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class FollowUps:
    """Questions that the user may ask next."""

    questions: tuple[str, ...]


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The end of a choice. `Delta` describes ``choice_json``."""

    choice: int
    reason: str
    choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of every answer, with all steps of the answer.

    ``selection`` is None without a search.
    """

    steps: tuple[Step, ...]
    selection: Selection | None = None


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk of a pass-through answer, as the model server sent it."""

    raw_json: bytes


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole pass-through answer, as the model server sent it."""

    raw_json: bytes


Event = (
    Context
    | Start
    | Delta
    | Detections
    | CompactionBegun
    | CompactionDone
    | SearchBegun
    | SearchDone
    | FollowUps
    | Usage
    | Finish
    | Done
    | Chunk
    | Completion
)
Batch = Sequence[Event]

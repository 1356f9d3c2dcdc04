"""The events of an answer, in the order in which they may come."""

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
    """Numbers of tokens; ``raw_json`` is the model server's own object, where it sends one."""

    prompt_tokens: int
    completion_tokens: int
    raw_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the answer.

    Attributes:
        name: What was done.
        duration_ms: How long it took, in milliseconds.
        usage: The tokens that a model took for it, where it asked one and the answer's own `Usage` does not say.
        inner: What the service that was asked says of its own steps.
    """

    name: str
    duration_ms: float
    usage: Usage | None = None
    inner: tuple["Step", ...] = ()


class Subject(enum.Enum):
    """What a note is about."""

    QUERY = "query"
    RESULTS = "results"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was asked for and not done, or done without being asked for; said to whoever looks closely."""

    subject: Subject
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """What the answer rests on. The first event of every answer that is not a pass-through.

    Attributes:
        query: What was searched for; empty where nothing was.
        passages: What was found and fits the budget, best first.
        prompt: The messages that the model got.
        steps: The steps so far.
        left_out: Number of messages, the oldest ones, for which the model's window had no room.
        notes: What should be known besides.
        pictures: Pictures of pages that the model got.
        detectors: What is known of all detectors, where the turn names kinds.
        judged: What the detectors left of the turn; None: they stopped it.
    """

    query: str
    passages: tuple[Passage, ...]
    prompt: tuple[Message, ...]
    steps: tuple[Step, ...]
    left_out: int = 0
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()
    detectors: tuple[DetectorInfo, ...] = ()
    judged: Turn | None = None


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
        delta_json: Members of the choice's delta beside the content, as the model server sent them; an object, or
            empty. `parts` reads it.
        choice_json: Members of the choice beside its delta (log probabilities); an object, or empty.
    """

    choice: int
    text: str
    delta_json: bytes = b""
    choice_json: bytes = b""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is said beside the content. Read from the JSON each time, so that text and what is only passed on
        cost nothing.

        Raises:
            Unavailable: The model server sent something that cannot be read.
        """
        return parts_of(members_of(self.delta_json)) if self.delta_json else ()


@dataclass(frozen=True, slots=True)
class Detections:
    """What detectors found, and which of them failed and were passed over.

    ``item`` is the choice for output, the message's index for input. In an answer spans count what the model wrote
    without its follow-up questions. What was found beside a text has no span. ``left_out`` names what of an answer
    no detector could judge, and so was left out.
    """

    direction: Direction
    item: int
    findings: tuple[Finding, ...]
    failures: tuple[DetectorFailure, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchBegun:
    """The model searches; `SearchDone` follows before anything else. An empty query cannot be searched for."""

    query: str


@dataclass(frozen=True, slots=True)
class SearchDone:
    """What a search of the model found, of what the caller may see and the detectors pass."""

    query: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class FollowUps:
    """Questions the user may ask next."""

    questions: tuple[str, ...]


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A choice is complete; ``choice_json`` as of `Delta`."""

    choice: int
    reason: str
    choice_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is complete, with all its steps. The last event of every answer.

    ``selection`` is None where nothing was searched.
    """

    steps: tuple[Step, ...]
    selection: Selection | None = None


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One chunk of a pass-through, as the model server sent it."""

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

"""The texts of one answer that detectors judge in addition to the contents of its choices, each with a number."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
from servicekit.errors import Unavailable

from gateway.answering.choice_members import (
    CALLS_TOO_LONG,
    ChoiceMembers,
    Document,
    counts_only,
    split_start,
    without_span,
)
from gateway.answering.hold_back import HeldChoice, mark_withheld
from gateway.answering.json_texts import Span, replaced
from gateway.domain import (
    Action,
    Delta,
    Detections,
    DetectorFailure,
    Direction,
    Event,
    Finding,
    FollowUps,
    Start,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.ports.answering import Clearance

FIRST = 1 << 20
"""The first number of a text that is not the content of a choice. Choices have the numbers from 0."""

MAX_TEXTS = 640
"""The maximum number of judged texts in the documents of one answer. The gateway omits further documents."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Piece:
    """The next text for the detectors."""

    number: int
    text: str
    reply_json: bytes = b""
    auxiliary: bool = True
    last: bool = True


@dataclass(slots=True)
class _Growing:
    """A text of a choice that grows like its content. Clients receive the cleared part."""

    choice: ChoiceMembers
    name: str
    held: HeldChoice
    length: int = 0


@dataclass(slots=True)
class _Question:
    """A follow-up question."""

    text: str
    spans: list[Span]
    fully_judged: bool = False


class OtherTexts:
    """All texts of one answer other than the contents of its choices.

    The gateway releases a growing text as far as the detectors clear it. It releases a document when the document
    is complete and judged.

    Args:
        protected: Whether a detector redacts or blocks. Otherwise the detectors judge only follow-up questions.

    Attributes:
        pieces: The next texts for the detectors.
        size: The size of the held text.
    """

    def __init__(self, *, protected: bool) -> None:
        self._protected = protected
        self.pieces: list[Piece] = []
        self.size = 0
        self._next = FIRST
        self._growing: dict[tuple[int, str], _Growing] = {}
        self._by_number: dict[int, _Growing] = {}
        self._documents: dict[int, tuple[ChoiceMembers, Document, int]] = {}
        self._answer = ChoiceMembers(0)
        self._choices: dict[int, ChoiceMembers] = {}
        self._start: list[Document] = []
        self._usage: tuple[Usage, Document] | None = None
        self._texts = 0
        self._notices: list[Event] = []
        self._questions: dict[int, _Question] = {}

    @property
    def fully_judged(self) -> bool:
        """Return whether the detectors have judged all texts."""
        waiting = self._answer.waiting or any(choice.waiting for choice in self._choices.values())
        return not waiting and all(question.fully_judged for question in self._questions.values())

    @property
    def follow_ups_judged(self) -> bool:
        """Return whether there are follow-up questions and all of them are judged."""
        return bool(self._questions) and all(question.fully_judged for question in self._questions.values())

    def take_pieces(self) -> Sequence[Piece]:
        """Return the next texts for the detectors and clear the list."""
        pieces, self.pieces = self.pieces, []
        return pieces

    # --- input --------------------------------------------------------------------------------------------------

    def add_growing(self, choice: ChoiceMembers) -> int:
        """Add the new pieces of a choice's growing texts and return the number of additional held characters."""
        before = self.size
        pieces, choice.pieces = choice.pieces, []
        for name, text in pieces:
            growing = self._growing.get((choice.index, name))
            if growing is None:
                held = HeldChoice(self.new_number(), protected=False, chunked=False)
                growing = self._growing[choice.index, name] = _Growing(choice, name, held)
                self._by_number[held.index] = growing
                self._wait(choice)
            if text:
                growing.held.hold(Delta(growing.held.index, text))
                growing.length += len(text)
                self.size += len(text)
                self.pieces.append(Piece(growing.held.index, text, last=False))
        return self.size - before

    def add_complete(self, choice: ChoiceMembers, documents: Sequence[Document]) -> None:
        """Add the members of a complete choice other than its text.

        Raises:
            Unavailable: The choice's tool calls are too long for the detectors.
        """
        for (index, _), growing in self._growing.items():
            if index == choice.index and not growing.held.end_fed:
                growing.held.end_fed = True
                self.pieces.append(Piece(growing.held.index, ""))
        for document in documents:
            self.judge(choice, document)

    def add_start(self, event: Start) -> Start:
        """Add members of the whole answer and return the members that only identify the answer."""
        if not self._protected:
            return event
        known, others = split_start(event.raw_json)
        if others:
            document = Document(others, "")
            self._start.append(document)
            self.judge(None, document)
        return Start(_encode(known))

    def add_usage(self, event: Usage) -> Usage:
        """Add token counts and return the counts that clients may receive before the end."""
        if not self._protected or counts_only(event.raw_json):
            self._usage = None
            if not (self._protected and event.raw_json):
                return event
            # The detectors judge only one value of each duplicate name. Decoding removes the other values.
            return replace(event, raw_json=_encode(members_of(event.raw_json)))
        self._usage = event, Document({"usage": members_of(event.raw_json)}, "")
        return Usage(event.prompt_tokens, event.completion_tokens)

    def add_follow_ups(self, event: FollowUps) -> None:
        """Add the follow-up questions. All detectors judge each question as a separate text."""
        for text in event.questions:
            number = self.new_number()
            self._questions[number] = _Question(text, [])
            self.pieces.append(Piece(number, text, auxiliary=False))

    def end(self) -> None:
        """End the input."""
        if self._usage is not None:
            self.judge(None, self._usage[1])

    # --- output -------------------------------------------------------------------------------------------------

    def take(self, clearance: Clearance) -> list[Event]:
        """Record the detectors' result for one text and return the events that the result releases."""
        number = clearance.choice
        out: list[Event] = []
        item = 0
        if (growing := self._by_number.get(number)) is not None:
            growing.held.add_findings(clearance.findings)
            item, findings = growing.choice.index, growing.held.take_findings(now=True)
            left_out = self._grown(growing, clearance, out)
        elif (question := self._questions.get(number)) is not None:
            left_out = ()
            question.fully_judged = question.fully_judged or clearance.fully_judged
            spans = [
                (finding.start, finding.end, finding.replacement)
                for finding in clearance.findings
                if finding.action is Action.REDACT and finding.start is not None and finding.end is not None
            ]
            question.spans += spans
            findings = mark_withheld(clearance.findings, [(begin, end) for begin, end, _ in question.spans])
        else:
            choice, document, at = self._documents[number]
            document.take(at, clearance)
            if clearance.blocked:
                return client_events(choice.index, clearance.findings, clearance.failures)
            if not (clearance.fully_judged and document.fully_judged):
                return client_events(choice.index, (), clearance.failures)
            choice.waiting -= 1
            # The detectors of conversations judge the tool calls that text detectors cannot judge.
            left_out = () if document is choice.calls_document else tuple(document.left_out)
            return client_events(choice.index, document.shown_findings(), clearance.failures, left_out)
        return [*client_events(item, findings, clearance.failures, left_out), *out]

    def take_starts(self) -> list[Start]:
        """Return the members of the whole answer that the detectors have judged since the last call."""
        ready = [document for document in self._start if document.fully_judged]
        self._start = [document for document in self._start if not document.fully_judged]
        return [Start(_encode(members)) for document in ready if (members := document.members())]

    def final_events(self) -> list[Event]:
        """Return the last events of the answer."""
        questions = [replaced(question.text, question.spans) for question in self._questions.values()]
        events: list[Event] = [FollowUps(tuple(questions))] if questions else []
        return [*self._notices, *events]

    def cleared_usage(self, usage: Usage | None) -> Usage | None:
        """Return the token counts together with the judged members of the usage object."""
        if self._usage is None or not self._usage[1].fully_judged:
            return usage
        event, document = self._usage
        members = document.members().get("usage")
        return usage if members is None else replace(event, raw_json=_encode(members))

    def _grown(self, growing: _Growing, clearance: Clearance, out: list[Event]) -> tuple[str, ...]:
        held = growing.held
        before = held.size
        held.cleared = max(held.cleared, clearance.cleared_until)
        released: list[Event] = []
        held.release(released)
        out += [
            Delta(growing.choice.index, "", _encode({growing.name: event.text}))
            for event in released
            if isinstance(event, Delta)
        ]
        self.size -= before - held.size
        if not clearance.fully_judged:
            return ()
        growing.choice.waiting -= 1
        if held.cleared < growing.length:
            return (f"choices[{growing.choice.index}].message.{growing.name}",)
        return ()

    def judge(self, choice: ChoiceMembers | None, document: Document) -> None:
        """Submit complete parts of a choice, or of the whole answer, to the detectors.

        Raises:
            Unavailable: The parts are tool calls that are too long for the detectors.
        """
        choice = choice or self._answer
        self._texts += len(document.texts)
        if self._texts > MAX_TEXTS:
            if document is choice.calls_document:
                raise Unavailable(CALLS_TOO_LONG)
            document.omit_all()
        if document.fully_judged:
            # The document contains no text that a detector can read.
            self._notices += client_events(choice.index, (), (), tuple(document.left_out))
            return
        self._wait(choice)
        for at, text in enumerate(document.texts):
            number = self.new_number()
            self._documents[number] = choice, document, at
            self.pieces.append(Piece(number, text))

    def _wait(self, choice: ChoiceMembers) -> None:
        choice.waiting += 1
        if choice is not self._answer:
            self._choices[choice.index] = choice

    def new_number(self) -> int:
        """Return a new number for a text."""
        self._next += 1
        return self._next - 1


def client_events(
    item: int,
    findings: Iterable[Finding],
    failures: tuple[DetectorFailure, ...],
    left_out: tuple[str, ...] = (),
) -> list[Event]:
    """Return the events about a text that is not the content of a choice.

    The findings in the events have no spans and no duplicates, because clients do not receive the judged text.
    """
    found = tuple(dict.fromkeys(map(without_span, findings)))
    if not (found or failures or left_out):
        return []
    return [Detections(Direction.OUTPUT, item, found, failures, left_out)]

"""The members of a choice other than its text.

If a detector redacts or blocks, the choice is protected: detectors also judge these members before clients receive
them.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
from servicekit.errors import Unavailable

from gateway.answering.json_texts import MAX_LENGTH, JsonTexts, Unjudgeable
from gateway.domain import Action, Delta, Finding, Finish
from gateway.domain.deltas import members_of, merge
from gateway.ports.answering import Clearance

STREAMED = ("reasoning_content", "reasoning", "refusal")
"""Members of a delta that contain text and grow like the content."""

UNJUDGEABLE = frozenset(
    (
        "audio",
        "encrypted_content",
        "logprobs",
        "prompt_logprobs",
        "prompt_token_ids",
        "token_ids",
    )
)
"""Members that encode text in a form that no text detector can read. The gateway omits them."""

_LEFT_OUT = object()
"""The value of a member that the gateway omits without judging it."""

_CALLS = ("tool_calls", "function_call")
_IDENTIFIERS = frozenset(("id", "object", "created", "model", "system_fingerprint", "service_tier"))
# fmt: off
_COUNTS = frozenset((
    "accepted_prediction_tokens", "audio_tokens", "cached_tokens", "completion_tokens",
    "completion_tokens_details", "image_tokens", "prompt_tokens", "prompt_tokens_details", "reasoning_tokens",
    "rejected_prediction_tokens", "text_tokens", "total_tokens",
))
# fmt: on
_MAX_IDENTIFIER_LENGTH = 128

CALLS_TOO_LONG = "The model's tool calls are too long for the detectors. Request shorter tool calls."

_encode = msgspec.json.encode
E = TypeVar("E", Delta, Finish)


class Document:
    """Complete members that are judged and released together.

    Args:
        members: The members.
        path: Their JSON path, for warnings.

    Attributes:
        names: Names of the members.
        texts: The texts for the detectors.
        found: The findings without spans. Clients do not receive the texts to which the spans belong.
        left_out: Paths of the omitted members, which no detector could judge.
    """

    def __init__(self, members: dict[str, Any], path: str) -> None:
        self.names = tuple(members)
        self.found: dict[Finding, None] = {}
        judgeable = {name: value for name, value in members.items() if not _is_unjudgeable(name, value)}
        self.left_out = [f"{path}{name}" for name in members if name not in judgeable]
        self._path = path
        self._judgeable = tuple(judgeable)
        self._texts: JsonTexts | None = None
        try:
            self._texts = JsonTexts(judgeable) if judgeable else None
        except Unjudgeable:
            self._leave_out(judgeable)
        self.texts = self._texts.texts if self._texts is not None else ()
        self._remaining = len(self.texts)

    @property
    def fully_judged(self) -> bool:
        """Return whether the detectors have judged all texts."""
        return not self._remaining

    @property
    def changed(self) -> bool:
        """Return whether the members differ from the original."""
        return bool(self.left_out) or (self._texts is not None and self._texts.changed)

    def take(self, at: int, clearance: Clearance) -> None:
        """Record the detectors' result for one of the texts."""
        self.found |= dict.fromkeys(map(without_span, clearance.findings))
        if self._texts is not None:
            self._texts.take(at, clearance.findings)
        if clearance.fully_judged:
            self._remaining -= 1
            if clearance.cleared_until < len(self.texts[at]) and self._texts is not None:
                self._leave_out(self._judgeable)

    def omit_all(self) -> None:
        """Omit all members, because they are too long for the detectors."""
        self._remaining, self.texts = 0, ()
        self._leave_out(self._judgeable)

    def shown_findings(self) -> tuple[Finding, ...]:
        """Return the findings for clients. A report-only finding must not reveal replaced text."""
        return tuple(finding for finding in self.found if not (self.changed and finding.action is Action.REPORT))

    def members(self) -> dict[str, Any]:
        """Return the members after redaction."""
        return {} if self._texts is None else self._texts.replaced()

    def _leave_out(self, names: Iterable[str]) -> None:
        self._texts = None
        self.left_out += [f"{self._path}{name}" for name in names]


@dataclass(slots=True)
class ChoiceMembers:
    """The members of one protected choice other than its text.

    Attributes:
        index: The number of the choice.
        waiting: The number of growing texts and documents of the choice that are not judged yet.
        pieces: The next pieces of the growing texts, each with its member's name.
        calls: Pieces of tool calls, as the model server sent them.
        calls_document: The tool calls, once the choice is complete.
        delta_document: The other members of the delta, once the choice is complete.
        choice_document: The members of the choice other than its delta, once the choice is complete.
    """

    index: int
    waiting: int = 0
    pieces: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Delta] = field(default_factory=list)
    calls_document: Document | None = None
    delta_document: Document | None = None
    choice_document: Document | None = None
    _delta: "_MergedMembers" = field(default_factory=lambda: _MergedMembers())
    _choice: "_MergedMembers" = field(default_factory=lambda: _MergedMembers())

    def take(self, event: E) -> E:
        """Store an event's members and return the event without them."""
        if isinstance(event, Delta) and event.delta_json:
            for name, value in members_of(event.delta_json).items():
                if name in _CALLS:
                    continue  # `HeldChoice` collects the tool calls
                if name in STREAMED and isinstance(value, str):
                    self.pieces.append((name, value))
                else:
                    self._delta.add(name, value, len(event.delta_json))
            event = msgspec.structs.replace(event, delta_json=b"")
        if event.choice_json:
            for name, value in members_of(event.choice_json).items():
                self._choice.add(name, value, len(event.choice_json))
            event = msgspec.structs.replace(event, choice_json=b"")
        return event

    def complete(self, reply: dict[str, Any]) -> list[Document]:
        """Return the documents to judge after the choice is complete.

        Raises:
            Unavailable: The tool calls are too long for the detectors.
        """
        path = f"choices[{self.index}]."
        calls = {name: copy.deepcopy(reply[name]) for name in _CALLS if name in reply} if self.calls else {}
        if calls:
            self.calls_document = Document(calls, f"{path}message.")
            if self.calls_document.left_out:
                raise Unavailable(CALLS_TOO_LONG)
        if self._delta.members:
            self.delta_document = Document(self._delta.members, f"{path}message.")
        if self._choice.members:
            self.choice_document = Document(self._choice.members, path)
        documents = (self.calls_document, self.delta_document, self.choice_document)
        return [document for document in documents if document is not None]

    def final_deltas(self) -> list[Delta]:
        """Return the deltas to send before the choice's end. All documents must be judged."""
        out = []
        if self.delta_document is not None and (members := self.delta_document.members()):
            out.append(Delta(self.index, "", _encode(members)))
        if self.calls_document is None or self.calls_document.left_out or not self.calls_document.changed:
            # No text detector redacts these calls. The detectors of conversations have judged them.
            out += self.calls
        else:
            out.append(Delta(self.index, "", _encode(self.calls_document.members())))
        self.calls = []
        self.calls_document = self.delta_document = None
        return out

    def add_to_finish(self, finish: Finish) -> Finish:
        """Return the choice's end with the members of the choice."""
        if self.choice_document is None or not (members := self.choice_document.members()):
            return finish
        return msgspec.structs.replace(finish, choice_json=_encode(members))


@dataclass(slots=True)
class _MergedMembers:
    """The merged members of a growing choice, without the members beyond the detectors' size limit."""

    members: dict[str, Any] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, value: Any, size: int) -> None:
        self.size += size
        if _is_unjudgeable(name, value) or self.members.get(name) is _LEFT_OUT or self.size > MAX_LENGTH:
            self.members[name] = _LEFT_OUT
        else:
            merge(self.members, {name: value})


def _is_unjudgeable(name: str, value: Any) -> bool:
    return value is _LEFT_OUT or (name in UNJUDGEABLE and value is not None)


def split_start(raw_json: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the identifiers of an answer, and its other members, which may contain text."""
    identifiers: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in members_of(raw_json).items():
        is_identifier = name in _IDENTIFIERS and not isinstance(value, list | dict) and _is_short(value)
        (identifiers if is_identifier else others)[name] = value
    return identifiers, others


def counts_only(raw_json: bytes) -> bool:
    """Return whether a usage object contains only token counts."""
    return not raw_json or _are_counts(members_of(raw_json))


def without_span(finding: Finding) -> Finding:
    """Return a finding without its span and its text, because clients do not receive the judged text."""
    return replace(finding, start=None, end=None, text="", replacement="", extra_json=b"")


def _are_counts(value: Any) -> bool:
    if isinstance(value, dict):
        return all(name in _COUNTS and _are_counts(member) for name, member in value.items())
    return value is None or isinstance(value, int)


def _is_short(value: object) -> bool:
    return not isinstance(value, str) or (len(value) <= _MAX_IDENTIFIER_LENGTH and not any(map(str.isspace, value)))

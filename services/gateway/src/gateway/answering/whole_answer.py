"""Judge and redact an answer that the model server sent in one piece."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from servicekit.errors import Unavailable

from gateway.answering.choice_members import ChoiceMembers, Document, counts_only, split_start
from gateway.answering.citation_marks import spans_of
from gateway.answering.cited_names import exempt_marks
from gateway.answering.hold_back import mark_withheld
from gateway.answering.json_texts import Span, repeats_names, replaced
from gateway.answering.other_texts import FIRST, OtherTexts, Piece, client_events
from gateway.domain import Action, Detections, Direction, Event, Finding, Usage
from gateway.domain.deltas import choices_of, drop_indexes, index_of, members_of
from gateway.ports.answering import Clearance

_GAP = "\n"
"""The separator of a content's parts in the second text that detectors judge. The first text has no separator."""

_encode = msgspec.json.encode


class _Choice:
    """One choice: its content, and the documents with its other members."""

    def __init__(self, choice: dict[str, Any], position: int, *, protected: bool) -> None:
        self.choice = choice
        self.index = index_of(choice, position)
        self.message: dict[str, Any] = choice.get("message") or {}
        self.plain = "message" not in choice
        self.content = choice.get("text") if self.plain else self.message.get("content")
        self.spans: list[list[Span]] = [[] for _ in self.parts or (self.content,)]
        self.fully_judged = False
        self.documents: list[tuple[dict[str, Any], Document]] = []
        if protected:
            path = f"choices[{self.index}]."
            members = {name: value for name, value in self.message.items() if name not in ("content", "role")}
            if isinstance(self.content, list):
                members["content"] = [_without_text(part) for part in self.content]
            if members:
                self.documents.append((self.message, Document(members, f"{path}message.")))
            judged_elsewhere = ("index", "finish_reason", "text" if self.plain else "message")
            others = {name: value for name, value in choice.items() if name not in judged_elsewhere}
            if others:
                self.documents.append((choice, Document(others, path)))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Return the text parts of the content, or an empty list if the content is a string."""
        parts = self.content if isinstance(self.content, list) else ()
        return [part for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]

    @property
    def text(self) -> str:
        """Return the content for the detectors, with its parts joined as clients join them."""
        return self.content if isinstance(self.content, str) else "".join(part["text"] for part in self.parts)

    @property
    def reply_json(self) -> bytes:
        """Return the tool calls for detectors of conversations, or empty bytes without tool calls."""
        reply = {name: self.message[name] for name in ("tool_calls", "function_call") if self.message.get(name)}
        if not reply:
            return b""
        reply = members_of(_encode(reply))
        drop_indexes(reply)
        return _encode(reply)

    def take(self, findings: Iterable[Finding], *, gap: int = 0) -> None:
        """Record the spans to replace.

        Args:
            findings: The findings in the judged text.
            gap: The number of characters between parts in the judged text.
        """
        spans = [
            (finding.start, finding.end, finding.replacement)
            for finding in findings
            if finding.action is Action.REDACT and finding.start is not None and finding.end is not None
        ]
        at = 0
        for part, part_spans in zip([part["text"] for part in self.parts] or [self.text], self.spans, strict=True):
            end = at + len(part)
            part_spans += [
                (max(begin, at) - at, min(stop, end) - at, replacement if begin >= at else "")
                for begin, stop, replacement in spans
                if begin < end and stop > at
            ]
            at = end + gap

    def redact(self) -> bool:
        """Replace the spans and return whether the choice has changed."""
        changed = False
        texts = [part["text"] for part in self.parts]
        for members, document in self.documents:
            if document.changed:
                changed = True
                _replace_members(members, document)
        if any(self.spans) and isinstance(self.content, str):
            holder, name = (self.choice, "text") if self.plain else (self.message, "content")
            holder[name] = replaced(self.content, self.spans[0])
        if isinstance(self.content, list) and (changed or any(self.spans)):
            now = iter(zip(texts, self.spans, strict=True))
            kept = self.message.get("content")
            # The content may be missing: members that no detector can read are removed.
            for part in kept if isinstance(kept, list) else ():
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    text, spans = next(now)
                    part["text"] = replaced(text, spans)
        return changed or any(self.spans)


def _without_text(part: Any) -> Any:
    """Return a content part without its text. Detectors judge the texts of all parts together."""
    return part | {"text": ""} if isinstance(part, dict) and isinstance(part.get("text"), str) else part


class WholeAnswer:
    """One answer in one piece. If nothing is replaced and no name is a duplicate, its bytes do not change.

    Args:
        raw_json: The answer.
        other_texts: Judges the parts other than the contents of the choices.
        protected: Whether a detector redacts or blocks. Otherwise detectors judge only the contents.
        names: The names of the passages, as in `HeldChoice`.

    Raises:
        Unavailable: The answer is invalid.
    """

    def __init__(
        self, raw_json: bytes, other_texts: OtherTexts, *, protected: bool, names: frozenset[str] = frozenset()
    ) -> None:
        self._names = names
        self._raw_json = raw_json
        self._protected = protected
        self._body = members_of(raw_json)
        items = choices_of(self._body)
        self.choices = {
            choice.index: choice
            for choice in (_Choice(item, at, protected=protected) for at, item in enumerate(items))
        }
        if len(self.choices) < len(items) or any(not 0 <= index < FIRST for index in self.choices):
            raise Unavailable(
                "The model server sent choices with duplicate or negative indexes. Check the model server."
            )
        self._others: Document | None = None
        for choice in self.choices.values():
            owner = ChoiceMembers(choice.index)
            for _, document in choice.documents:
                other_texts.judge(owner, document)
        if protected:
            _, others = split_start(raw_json)
            others.pop("choices", None)
            if counts_only(_encode(others.get("usage") or {})):
                others.pop("usage", None)
            if others:
                self._others = Document(others, "")
                other_texts.judge(None, self._others)
        several = [choice for choice in self.choices.values() if len(choice.parts) > 1] if protected else []
        self._parts = {other_texts.new_number(): choice for choice in several}
        self._remaining = set(self._parts)

    def pieces(self) -> Iterator[Piece]:
        """Yield the contents for the detectors."""
        for choice in self.choices.values():
            if choice.text or choice.reply_json:
                yield Piece(choice.index, choice.text, choice.reply_json, auxiliary=False)
            else:
                choice.fully_judged = True
        for number, choice in self._parts.items():
            yield Piece(number, _GAP.join(part["text"] for part in choice.parts))

    def has_text(self, number: int) -> bool:
        """Return whether the text with this number is one of the contents."""
        return number in self.choices or number in self._parts

    def take(self, clearance: Clearance) -> list[Event]:
        """Record the detectors' result for one of the contents and return the events for clients."""
        if (parts := self._parts.get(clearance.choice)) is not None:
            joined = _GAP.join(part["text"] for part in parts.parts)
            parts.take(exempt_marks(clearance.findings, spans_of(joined, self._names)), gap=len(_GAP))
            if clearance.fully_judged:
                self._remaining.discard(clearance.choice)
            return client_events(parts.index, clearance.findings if clearance.blocked else (), clearance.failures)
        choice = self.choices[clearance.choice]
        choice.fully_judged = choice.fully_judged or clearance.fully_judged
        findings = clearance.findings
        if self._names and any(finding.action is Action.REDACT for finding in findings):
            findings = exempt_marks(findings, spans_of(choice.text, self._names))
        choice.take(findings)
        redacted = [
            (finding.start, finding.end)
            for finding in findings
            if finding.action is Action.REDACT and finding.start is not None and finding.end is not None
        ]
        findings = mark_withheld(findings, redacted)
        if not (findings or clearance.failures):
            return []
        return [Detections(Direction.OUTPUT, choice.index, findings, clearance.failures)]

    @property
    def fully_judged(self) -> bool:
        """Return whether the detectors have judged all contents."""
        return not self._remaining and all(choice.fully_judged for choice in self.choices.values())

    @property
    def usage(self) -> Usage | None:
        """Return the token counts without other members, or None if the answer has no counts."""
        usage = self._body.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        prompt, answer = counts.get("prompt_tokens"), counts.get("completion_tokens")
        if not (isinstance(prompt, int) and isinstance(answer, int)):
            return None
        return Usage(max(prompt, 0), max(answer, 0))

    def json(self) -> bytes:
        """Return the answer after redaction."""
        changed = [choice.redact() for choice in self.choices.values()]
        if self._others is not None and self._others.changed:
            _replace_members(self._body, self._others)
            changed.append(True)
        # The detectors judged only one value of each duplicate name. Encoding removes the other values.
        reencode = any(changed) or (self._protected and repeats_names(self._raw_json))
        return _encode(self._body) if reencode else self._raw_json


def _replace_members(members: dict[str, Any], document: Document) -> None:
    """Replace the members that a document judged by the redacted members."""
    for name in document.names:
        members.pop(name, None)
    members |= document.members()

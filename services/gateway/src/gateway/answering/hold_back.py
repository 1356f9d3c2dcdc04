"""Hold the events of one choice of an answer while detectors judge them."""

from collections import deque
from dataclasses import replace
from typing import Any

import msgspec

from gateway.answering.choice_members import ChoiceMembers, Document
from gateway.answering.cited_names import CitedNames
from gateway.answering.word_edges import separator
from gateway.domain import Action, Delta, Event, Finding, Finish
from gateway.domain.deltas import ToolCall, drop_indexes, members_of, merge, tool_calls_json

MAX_REPLY_LENGTH = 256 * 1024
"""The maximum number of bytes of a choice's tool calls for the detectors.

If no detector redacts or blocks, the gateway sends longer calls unjudged.
"""

_encode = msgspec.json.encode


def size_of(event: Delta | Finish) -> int:
    """Return the size of an event, which counts towards the limit of the held events.

    The size is the number of characters of the text and of bytes of the JSON members.
    """
    if isinstance(event, Finish):
        return 0
    return len(event.text) + len(event.delta_json) + len(event.choice_json)


class HeldChoice:
    """One choice, which holds the model's events and releases the cleared events.

    If a detector redacts or blocks, the detectors also judge the members other than the text (`ChoiceMembers`). The
    choice then releases its tool calls after the detectors have judged all members.

    Args:
        index: The number of the choice.
        protected: Whether a detector redacts or blocks.
        chunked: Whether to release the text of each clearance as one event.
        names: The names of the passages that the caller has received. The choice does not redact them in citations.

    Attributes:
        index: The number of the choice.
        cleared: The number of code points of the text that may be released.
        fed: Whether the detectors have received a part of the choice.
        end_fed: Whether the detectors have received the end of the choice.
        fully_judged: Whether the detectors have judged the whole text.
        finished: Whether the finish is released.
        size: The size of the held events by `size_of`. With protection it counts only their text.
        overlong: Whether the tool calls are too long for the detectors.
        members: The members other than the text, or None without protection.
        follow_ups_pending: Whether the detectors have not judged the follow-up questions yet. The choice cannot end
            before.

    >>> choice = HeldChoice(0, protected=True, chunked=False)
    >>> for piece in ("The code ", "is 42."):
    ...     choice.hold(Delta(0, piece))
    >>> released = []
    >>> choice.cleared = 12  # the detectors have cleared "The code is "
    >>> choice.release(released)
    >>> [delta.text for delta in released], choice.empty
    (['The code is '], False)
    """

    def __init__(self, index: int, *, protected: bool, chunked: bool, names: frozenset[str] = frozenset()) -> None:
        self.index = index
        self.cleared = 0
        self.fed = False
        self.end_fed = False
        self.fully_judged = False
        self.finished = False
        self.size = 0
        self.overlong = False
        self._chunked = chunked
        self._pending: deque[Delta | Finish] = deque()
        # Text after the pending events without other members: most tokens are only text.
        self._text_run: list[str] = []
        self.members = ChoiceMembers(index) if protected else None
        self.follow_ups_pending = False
        self._cited = CitedNames(names)
        self._reply: dict[str, Any] = {}
        self._reply_size = 0
        self._redactions: deque[Finding] = deque()
        self._redacted_spans: list[tuple[int, int]] = []
        self._offset = 0
        self._last_kept = ""  # the last text that was not redacted
        self._last_redacted = ""  # the last character before the offset, if it was redacted
        self._edge = ""  # the last character of the last replacement

    @property
    def empty(self) -> bool:
        """Return whether the choice holds no event."""
        members_held = self.members is not None and (self.members.waiting or self.members.calls)
        return not (self._pending or self._text_run or members_held)

    @property
    def reply_json(self) -> bytes:
        """Return the merged tool calls as one JSON object, or empty bytes without tool calls."""
        if not self._reply:
            return b""
        drop_indexes(self._reply)
        return _encode(self._reply)

    def hold(self, event: Delta | Finish) -> None:
        """Hold an event until it may be released. The choice keeps the order of its events."""
        if isinstance(event, Delta):
            if event.text and not (event.delta_json or event.choice_json):
                self.fed = True
                self._text_run.append(event.text)
                self._cited.feed(event.text)
                self.size += len(event.text)
                return
            if event.text:
                self.fed = True
                self._cited.feed(event.text)
            if event.delta_json:
                self._take_calls(event)
            if self.members is not None:
                event = self.members.take(event)
            if not (event.text or event.delta_json or event.choice_json):
                return
        elif self.members is not None:
            event = self.members.take(event)
        self._close_run()
        self._pending.append(event)
        self.size += size_of(event)

    def complete(self) -> list[Document]:
        """Return the documents to judge after the choice is complete."""
        self._cited.end()
        return [] if self.members is None else self.members.complete(self._reply)

    def _take_calls(self, delta: Delta) -> None:
        calls = [part for part in delta.parts if type(part) is ToolCall]
        if calls:
            self.fed = True
            self._reply_size += len(delta.delta_json)
            calls_json = tool_calls_json(calls)
            if self.members is not None:
                self.members.calls.append(Delta(self.index, "", calls_json))
                self.overlong = self._reply_size > MAX_REPLY_LENGTH
            if self._reply_size <= MAX_REPLY_LENGTH:
                merge(self._reply, members_of(calls_json))

    def add_findings(self, findings: tuple[Finding, ...]) -> None:
        """Add findings, which `take_findings` returns."""
        self._cited.add_findings(findings)

    def take_findings(self, *, now: bool = False) -> tuple[Finding, ...]:
        """Record the spans to redact and return the findings.

        A redaction that may be in an incomplete citation mark delays the findings.

        Args:
            now: Whether no more text follows, so that the method does not wait for a complete mark.

        Returns:
            The findings. A finding that would reveal redacted text is marked as withheld.
        """
        findings = self._cited.take_findings(now=now)
        if not findings:
            return ()
        spans = [f for f in findings if f.action is Action.REDACT and f.start is not None]
        if spans:
            self._redacted_spans = sorted([*self._redacted_spans, *((f.start or 0, f.end or 0) for f in spans)])
            spans += self._redactions
            self._redactions = deque(sorted(spans, key=lambda finding: finding.start or 0))
        return mark_withheld(findings, self._redacted_spans)

    def release(self, out: list[Event]) -> None:
        """Append the releasable events to ``out``: cleared text, other judged members, the finish."""
        begin = len(out)
        self._close_run()
        while self._pending:
            event = self._pending[0]
            if isinstance(event, Finish):
                if not self.fully_judged or self._is_waiting:
                    break
                self._pending.popleft()
                self.finished = True
                if self.members is not None:
                    out += self.members.final_deltas()
                    event = self.members.add_to_finish(event)
                out.append(event)
                continue
            releasable = self._cited.limit(self.cleared) - self._offset
            if event.text and len(event.text) > releasable:
                if releasable > 0:
                    # The event's other members are released with the last piece of its text.
                    self.size -= releasable
                    self._release_delta(Delta(event.choice, event.text[:releasable]), out, begin)
                    self._pending[0] = msgspec.structs.replace(event, text=event.text[releasable:])
                break
            self.size -= size_of(event)
            self._pending.popleft()
            self._release_delta(event, out, begin)
        if self.fully_judged and not self._pending and self.members is not None and not self._is_waiting:
            # The model ended without a finish.
            out += self.members.final_deltas()

    @property
    def _is_waiting(self) -> bool:
        return self.follow_ups_pending or (self.members is not None and self.members.waiting > 0)

    def _close_run(self) -> None:
        if self._text_run:
            self._pending.append(Delta(self.index, "".join(self._text_run)))
            self._text_run = []

    def _release_delta(self, delta: Delta, out: list[Event], begin: int) -> None:
        text = delta.text
        if self._redactions or self._last_redacted:
            text = self._redacted(text)
        elif text:
            self._last_kept = text
        self._offset += len(delta.text)
        self._cited.forget(self._offset)
        if text is not delta.text:
            if not (text or delta.delta_json or delta.choice_json):
                return
            delta = msgspec.structs.replace(delta, text=text)
        last = out[-1] if len(out) > (begin if self._chunked else 0) else None
        if type(last) is Delta and last.choice == self.index and (self._chunked or not (_raw(last) or _raw(delta))):
            out[-1] = _joined(last, delta)
        else:
            out.append(delta)

    def _redacted(self, text: str) -> str:
        """Return the text, which begins at the offset, after redaction.

        The replacement of a span is in the piece where the span begins. Later pieces lose the span's text.
        """
        begin, end = self._offset, self._offset + len(text)
        pieces: list[str] = []
        at = begin
        while self._redactions:
            finding = self._redactions[0]
            assert finding.start is not None
            assert finding.end is not None
            if finding.start >= end:
                break
            if finding.start >= at:
                self._keep(text[at - begin : finding.start - begin], pieces)
                first = finding.start - begin
                kept = "" if self._last_redacted else self._last_kept[-1:]
                pieces += [separator(kept, text[first : first + 1], finding.replacement[:1]), finding.replacement]
                self._edge = finding.replacement[-1:]
            if (cut := min(finding.end, end)) > at:
                self._last_redacted = text[cut - begin - 1]
                at = cut
            if finding.end > end:
                break
            self._redactions.popleft()
        self._keep(text[at - begin :], pieces)
        return "".join(pieces)

    def _keep(self, text: str, pieces: list[str]) -> None:
        if not text:
            return
        if self._last_redacted:
            pieces.append(separator(text[:1], self._last_redacted, self._edge))
        pieces.append(text)
        self._last_kept, self._last_redacted = text, ""


def mark_withheld(findings: tuple[Finding, ...], redacted: list[tuple[int, int]]) -> tuple[Finding, ...]:
    """Return the findings, with report-only findings that overlap redacted text marked as withheld.

    Args:
        findings: The findings.
        redacted: The redacted spans.
    """
    if not redacted:
        return findings
    return tuple(
        replace(finding, withheld=True)
        if finding.action is Action.REPORT and _overlaps(finding, redacted)
        else finding
        for finding in findings
    )


def _overlaps(finding: Finding, redacted: list[tuple[int, int]]) -> bool:
    if finding.start is None or finding.end is None:
        return bool(finding.text or finding.extra_json)  # a quotation without a known position may overlap
    return any(start < finding.end for start, end in redacted if end > finding.start)


def _raw(delta: Delta) -> bool:
    return bool(delta.delta_json or delta.choice_json)


def _joined(first: Delta, second: Delta) -> Delta:
    return Delta(
        first.choice,
        first.text + second.text,
        _merged(first.delta_json, second.delta_json),
        _merged(first.choice_json, second.choice_json),
    )


def _merged(first: bytes, second: bytes) -> bytes:
    if not (first and second):
        return first or second
    whole = members_of(first)
    merge(whole, members_of(second))
    return _encode(whole)

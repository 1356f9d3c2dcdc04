"""Collect a request's texts other than its messages' texts: members of messages, tools, the request's prompt."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.answering.choice_members import without_span
from gateway.answering.json_texts import JsonTexts, Span, Unjudgeable, replaced
from gateway.domain import Action, Detections, Direction, Finding, Message, Turn, Verdict

# fmt: off
_SETTINGS = frozenset((
    "frequency_penalty", "ignore_eos", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "metadata",
    "min_p", "min_tokens", "modalities", "n", "parallel_tool_calls", "presence_penalty", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "repetition_penalty", "safety_identifier",
    "seed", "service_tier", "stop", "stop_token_ids", "store", "temperature", "top_k", "top_logprobs", "top_p",
    "user", "verbosity",
))
# fmt: on
"""Parameters that no model reads as text: sampling options and the user's name."""

WITHHELD = "(withheld)"
"""The text that replaces a blocked old message. Some models refuse an empty message."""

_IDS = ("tool_call_id",)
_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.encode

Gaps = tuple[int, ...]
"""The positions of the line breaks between parts of a message."""


class RequestTexts:
    """The texts of a turn that detectors judge in addition to the texts of its messages.

    Args:
        turn: The turn.
        places: The numbers of the messages. The question has the number after the history's last number.
        members: Whether to judge the other members of these messages, the parameters and the prompt. Otherwise
            judge the messages whose text has several parts, with the parts joined.
        answered: The number of the latest answer. A finding in a message up to this number does not block the
            request, but redacts the message. A blocking verdict that contains a finding without a position, or that
            results from a failed detector, still blocks the request.

    Raises:
        InvalidRequest: The texts are too long, or nested too deeply, for the detectors.

    Attributes:
        texts: The texts for the detectors.
    """

    def __init__(self, turn: Turn, places: Sequence[int], *, members: bool, answered: int = -1) -> None:
        self._turn = turn
        self._answered = answered
        self._last = len(turn.history) + bool(turn.question) - 1
        self._documents: list[tuple[int | None, JsonTexts]] = []
        self._joined: list[tuple[int, Gaps]] = []
        for at in places:
            extra, gaps = _extra_and_gaps(turn, at)
            if members and extra:
                self._add(at, {n: v for n, v in _read(extra).items() if n not in _IDS})
            if not members and gaps:
                self._joined.append((at, gaps))
        self._requested_prompt: JsonTexts | None = None
        if members:
            parameters = _read(turn.parameters_json)
            self._add(None, {name: value for name, value in parameters.items() if name not in _SETTINGS})
            if turn.prompting.requested_prompt:
                prompt = {"text": turn.prompting.requested_prompt}
                self._requested_prompt = _texts_of(prompt, "the prompt_template", "prompt_template")
        texts = [text for _, document in self._documents for text in document.texts]
        texts += self._requested_prompt.texts if self._requested_prompt is not None else ()
        texts += [_without(_text(turn, at), gaps) for at, gaps in self._joined]
        self.texts = tuple(texts)

    def take(self, verdicts: Sequence[Verdict]) -> tuple[Turn, list[Detections]]:
        """Return the turn after redaction, and the findings.

        Args:
            verdicts: One verdict for each text.
        """
        findings: dict[tuple[int, Finding], None] = {}
        left = iter(self._with_old_blocks_redacted(verdicts))
        turn = self._turn
        for place, document in self._documents:
            item = self._last if place is None else place
            findings |= dict.fromkeys((item, finding) for finding in _take_findings(document, left))
            if document.changed:
                turn = _with_members(turn, place, document.replaced())
        if self._requested_prompt is not None:
            findings |= dict.fromkeys(
                (self._last, finding) for finding in _take_findings(self._requested_prompt, left)
            )
            turn = _with_requested_prompt(turn, self._requested_prompt.replaced()["text"])
        for place, gaps in self._joined:
            spans: list[Span] = []
            for finding in self._crossing(next(left), place, gaps):
                findings[place, finding] = None
                spans.append((finding.start or 0, finding.end or 0, finding.replacement))
            if spans:
                turn = _with_text(turn, place, replaced(_text(turn, place), spans))
        return turn, [Detections(Direction.INPUT, item, (finding,)) for item, finding in findings]

    def blocking(self, verdicts: Sequence[Verdict]) -> Verdict | None:
        """Return the first verdict that blocks the request, or None.

        In a text of joined parts, only findings that span several parts block.
        """
        alone = len(self.texts) - len(self._joined)
        for verdict in self._with_old_blocks_redacted(verdicts)[:alone]:
            if verdict.action is Action.BLOCK:
                return verdict
        for verdict, (place, gaps) in zip(verdicts[alone:], self._joined, strict=True):
            findings = self._crossing(verdict, place, gaps)
            if across := tuple(finding for finding in findings if finding.action is Action.BLOCK):
                return replace(verdict, findings=across)
        return None

    def _crossing(self, verdict: Verdict, place: int, gaps: Gaps) -> list[Finding]:
        """Return the findings that span several parts. In an old message, none of them blocks."""
        findings = crossing(verdict, gaps)
        return [_redacting(finding) for finding in findings] if place <= self._answered else findings

    def _with_old_blocks_redacted(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return the verdicts. In an old message, a finding that blocks becomes a finding that redacts."""
        old = [
            place is not None and place <= self._answered
            for place, document in self._documents
            for _ in document.texts
        ]
        return [
            _replacing(verdict) if at < len(old) and old[at] else verdict for at, verdict in enumerate(verdicts)
        ]

    def _add(self, place: int | None, members: dict[str, Any]) -> None:
        if not members:
            return
        document = _texts_of(members, "the parameters" if place is None else f"messages[{place}]", "messages")
        if any(document.texts):
            self._documents.append((place, document))


def _texts_of(members: dict[str, Any], where: str, field: str) -> JsonTexts:
    """Return the texts in members.

    Raises:
        InvalidRequest: The detectors cannot judge the texts.
    """
    try:
        return JsonTexts(members)
    except Unjudgeable:
        raise InvalidRequest(
            f"{where}: the text is too long, or nested too deeply, for the detectors. Send less text.", field=field
        ) from None


def _replacing(verdict: Verdict) -> Verdict:
    if verdict.action is not Action.BLOCK or any(finding.start is None for finding in verdict.findings):
        return verdict
    if not any(finding.action is Action.BLOCK for finding in verdict.findings):
        return verdict  # a detector failed
    return replace(verdict, action=Action.REDACT, findings=tuple(map(_redacting, verdict.findings)))


def _redacting(finding: Finding) -> Finding:
    """Return the finding. A finding that blocks becomes a finding that redacts."""
    blocks = finding.action is Action.BLOCK
    return replace(finding, action=Action.REDACT, replacement=WITHHELD) if blocks else finding


def crossing(verdict: Verdict, gaps: Gaps) -> list[Finding]:
    """Return the findings that span a gap, with their positions in the text with gaps.

    Args:
        verdict: The verdict on the text without gaps.
        gaps: The positions of the gaps.
    """
    found = []
    for finding in verdict.findings:
        if finding.start is None or finding.end is None or finding.action is Action.REPORT:
            continue
        # Add the gaps before the position.
        start = finding.start + sum(gap - at <= finding.start for at, gap in enumerate(gaps))
        end = finding.end + sum(gap - at < finding.end for at, gap in enumerate(gaps))
        if end - start > finding.end - finding.start:
            found.append(replace(finding, start=start, end=end, text=""))
    return found


def _read(raw_json: bytes) -> dict[str, Any]:
    try:
        return _object.decode(raw_json)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            "The request contains a JSON value that the detectors cannot read. Send valid JSON with fewer levels.",
            field="body",
        ) from error


def _take_findings(document: JsonTexts, verdicts: Any) -> list[Finding]:
    found: list[Finding] = []
    for at in range(len(document.texts)):
        verdict: Verdict = next(verdicts)
        document.take(at, verdict.findings)
        found += map(without_span, verdict.findings)
    return found


def _extra_and_gaps(turn: Turn, at: int) -> tuple[bytes, Gaps]:
    if at < len(turn.history):
        return turn.history[at].extra_json, turn.history[at].gaps
    return turn.original.question_extra_json, turn.original.question_gaps


def _text(turn: Turn, at: int) -> str:
    return turn.history[at].text if at < len(turn.history) else turn.question


def _without(text: str, gaps: Gaps) -> str:
    pieces, done = [], 0
    for gap in gaps:
        pieces.append(text[done:gap])
        done = gap + 1
    return "".join([*pieces, text[done:]])


def _with_members(turn: Turn, place: int | None, members: dict[str, Any]) -> Turn:
    if place is None:
        parameters = _read(turn.parameters_json)
        unchanged = {name: value for name, value in parameters.items() if name in _SETTINGS}
        return replace(turn, parameters_json=_encode(unchanged | members))
    extra, _ = _extra_and_gaps(turn, place)
    unchanged = {name: value for name, value in _read(extra).items() if name in _IDS}
    extra = _encode(unchanged | members)
    if place == len(turn.history):
        return replace(turn, original=replace(turn.original, question_extra_json=extra))
    return _with_message(turn, place, replace(turn.history[place], extra_json=extra))


def _with_text(turn: Turn, place: int, text: str) -> Turn:
    if place == len(turn.history):
        return replace(turn, question=text)
    return _with_message(turn, place, replace(turn.history[place], text=text, gaps=()))


def _with_message(turn: Turn, place: int, message: Message) -> Turn:
    return replace(turn, history=(*turn.history[:place], message, *turn.history[place + 1 :]))


def _with_requested_prompt(turn: Turn, text: str) -> Turn:
    options = turn.prompting
    if options.system_prompt is None or text == options.requested_prompt:
        return turn
    prompt = options.system_prompt.replace(options.requested_prompt, text)
    return replace(turn, prompting=replace(options, system_prompt=prompt, requested_prompt=text))

"""Map the positions of findings in a turn to positions in the request. A turn reorders and joins messages."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain import PART_BREAK, Detections, Finding, Turn


def in_request(turn: Turn, found: Sequence[Detections]) -> tuple[Detections, ...]:
    """Return the findings in a turn's messages with the positions of the request's messages.

    The function splits a finding that spans several messages of the question. A finding without a span belongs to
    the question's last message.

    Args:
        turn: The turn that the detectors judged.
        found: The findings. An item is the number of a message of the history. The question has the next number.
    """
    if not (places := turn.original.places):
        return tuple(found)
    history, question = places[: len(turn.history)], places[len(turn.history) :]
    out: list[Detections] = []
    for detections in found:
        if detections.item < len(history):
            out.append(replace(detections, item=history[detections.item]))
        elif len(question) == 1:
            out.append(replace(detections, item=question[0]))
        else:
            out += _in_parts(turn, question, detections)
    return tuple(out)


def _in_parts(turn: Turn, places: Sequence[int], found: Detections) -> list[Detections]:
    parts: list[Detections] = []
    begin = 0
    for place in places:
        last = place == places[-1]
        end = begin + len(turn.original.messages[place].text)
        findings = tuple(
            part for finding in found.findings if (part := _in_part(finding, begin, end, whole=last)) is not None
        )
        failures = found.failures if last else ()
        if findings or failures:
            parts.append(replace(found, item=place, findings=findings, failures=failures))
        begin = end + len(PART_BREAK)
    return parts


def _in_part(finding: Finding, begin: int, end: int, *, whole: bool) -> Finding | None:
    """Return the part of a finding within one message of the question, or None.

    Args:
        finding: The finding in the whole question.
        begin: The offset of the message in the question.
        end: The offset of the message's end.
        whole: Return a finding without a span unchanged.
    """
    if finding.start is None or finding.end is None:
        return finding if whole else None
    start, stop = max(finding.start, begin), min(finding.end, end)
    if start >= stop:
        return None
    text = finding.text
    if stop - start < finding.end - finding.start:
        text = text[start - finding.start : stop - finding.start]
    return replace(finding, start=start - begin, end=stop - begin, text=text)

"""Calls a slow detector with its time limit, and maps the detections to positions in the text."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from detection.chunking.chunkers import Window, Windows
from detection.detectors.port import DetectorFailed, Judge, MissingPassages
from detection.domain import Detection, DetectionContext, DetectorKind
from detection.moderation.metrics import FOUND, working
from detection.moderation.rules import Rule

_TIMEOUT = 504


async def call_judge(rule: Rule, windows: Sequence[Window], context: DetectionContext) -> list[list[Detection]]:
    """Return the detections of a rule's `Judge` in each window, with positions in the whole text.

    Skip blank windows, unless the detector judges blank texts.

    Raises:
        DetectorFailed: The detector failed, or exceeded its time limit.
        MissingPassages: The detector compares texts with passages, and the request has no passages.
    """
    judge = rule.detector
    assert isinstance(judge, Judge)
    judged = [(index, window) for index, window in enumerate(windows) if judge.judges_blank or window.text.strip()]
    answers: list[list[Detection]] = [[] for _ in windows]
    if not judged:
        return answers
    with working(rule.detector_id) as work:
        if judge.kind is DetectorKind.CONTEXT_DOC and not any(map(str.strip, context.passages)):
            raise MissingPassages
        try:
            async with asyncio.timeout(judge.seconds):
                found = await judge.judge([window.text for _, window in judged], context)
        except TimeoutError:
            raise DetectorFailed(f"the detector took longer than {judge.seconds:g} s", _TIMEOUT) from None
        if any(found):
            work.outcome = FOUND
    for (index, window), detections in zip(judged, found, strict=True):
        answers[index] = [_moved(detection, window.start) for detection in detections]
    return answers


async def split_text(judge: Judge, text: str) -> list[Window]:
    """Return the windows of a whole text.

    Raises:
        DetectorFailed: The text cannot be split.
    """
    ready = asyncio.Event()
    windows = Windows(judge.chunker(ready.set), len(text))
    try:
        found = windows.feed(text, last=True)
        while not windows.complete:
            await ready.wait()
            ready.clear()
            found += windows.feed("", last=False)
    finally:
        windows.close()
    return found


def _moved(detection: Detection, start: int) -> Detection:
    if detection.start is None or detection.end is None or not start:
        return detection
    return replace(detection, start=detection.start + start, end=detection.end + start)

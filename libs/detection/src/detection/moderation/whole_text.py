"""Applies the rules of a request to whole texts."""

import asyncio
from collections.abc import Sequence

from detection.chunking.chunkers import Window
from detection.detectors.port import Judge
from detection.domain import (
    Action,
    Detection,
    DetectionContext,
    Direction,
    Failure,
    Finding,
    Verdict,
)
from detection.moderation.cross_choice import shared_detections
from detection.moderation.judge_calls import call_judge, split_text
from detection.moderation.metrics import CLEAN, FOUND, working
from detection.moderation.rules import (
    Rule,
    merged_spans,
    redact,
    sort_key,
    strictest,
    with_merged_replacements,
)
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.two_passes import PositionMap, first_pass_rules, in_original_text, second_pass_rules

_Found = Sequence[Detection] | Exception
"""The detections of a rule's detector in one text, or the detector's error."""


async def judge(
    texts: Sequence[str], rules: Sequence[Rule], context: DetectionContext, workers: ThreadPool
) -> tuple[list[Verdict], list[Failure]]:
    """Return a verdict for each text, and the failures of detectors.

    If a detector fails on a text, its rule decides whether the text is blocked. Slow detectors (`Judge`) run
    concurrently, and each gets all texts in one call. If a replacement can form a new match with the text beside
    it, a second pass judges the texts with these replacements; see `detection.moderation.two_passes`.
    """
    first_rules = first_pass_rules(rules)
    if not first_rules:
        return await _judge(texts, rules, context, workers)
    first, failures = await _judge(texts, first_rules, context, workers)
    maps = [PositionMap() for _ in texts]
    for positions, verdict in zip(maps, first, strict=True):
        for span in merged_spans(verdict.findings):
            positions.add(*span)
    replaced = [redact(text, verdict.findings, joint="") for text, verdict in zip(texts, first, strict=True)]
    second, second_failures = await _judge(replaced, second_pass_rules(rules), context, workers)
    verdicts = [
        _combined(text, verdict, after, positions)
        for text, verdict, after, positions in zip(texts, first, second, maps, strict=True)
    ]
    return verdicts, list(dict.fromkeys([*failures, *second_failures]))


def _combined(text: str, first: Verdict, second: Verdict, positions: PositionMap) -> Verdict:
    """Combine the verdicts of both passes into one, with positions in the original text."""
    findings = sorted([*first.findings, *in_original_text(second.findings, positions)], key=sort_key)
    blocked = Action.BLOCK in (first.action, second.action)
    action = Action.BLOCK if blocked else strictest(findings)
    redacted_text = redact(text, findings) if action is Action.REDACT else ""
    return Verdict(action, with_merged_replacements(findings), redacted_text)


async def _judge(
    texts: Sequence[str], rules: Sequence[Rule], context: DetectionContext, workers: ThreadPool
) -> tuple[list[Verdict], list[Failure]]:
    size = sum(map(len, texts))
    found = await asyncio.gather(*(_judge_rule(rule, texts, size, context, workers) for rule in rules))
    failures: dict[Failure, None] = {}  # an ordered set
    verdicts = [
        _verdict(text, rules, [of_rule[index] for of_rule in found], failures) for index, text in enumerate(texts)
    ]
    return verdicts, list(failures)


def _verdict(text: str, rules: Sequence[Rule], found: Sequence[_Found], failures: dict[Failure, None]) -> Verdict:
    findings: list[Finding] = []
    action = Action.NONE
    for rule, detections in zip(rules, found, strict=True):
        if isinstance(detections, Exception):
            failures[rule.failure(detections)] = None
            action = Action.BLOCK if rule.blocks_on(detections) else action
        else:
            findings += rule.findings(detections)
    findings.sort(key=sort_key)
    action = max(action, strictest(findings))
    text = redact(text, findings) if action is Action.REDACT else ""
    return Verdict(action, with_merged_replacements(findings), text)


async def _judge_rule(
    rule: Rule, texts: Sequence[str], size: int, context: DetectionContext, workers: ThreadPool
) -> Sequence[_Found]:
    detector = rule.detector
    if isinstance(detector, Judge):
        try:
            return await _detections(rule, detector, texts, context)
        except Exception as error:  # a failed detector must not fail the request
            return [error] * len(texts)

    def scan() -> list[_Found]:
        found: list[_Found] = []
        with working(rule.detector_id) as work:
            for text in texts:
                try:
                    found.append(detector.detect(text))
                except Exception as error:  # a failed detector must not fail the request
                    found.append(error)
                    work.failed(error)
            if work.outcome == CLEAN and any(found):
                work.outcome = FOUND
        return found

    return await workers.run(size <= detector.inline_limit, scan)


async def _detections(
    rule: Rule, judge: Judge, texts: Sequence[str], context: DetectionContext
) -> list[list[Detection]]:
    if judge.cross_choice and context.direction is Direction.OUTPUT:
        found = await call_judge(rule, [Window(0, text) for text in texts], context)
        return shared_detections(found)
    chunks: Sequence[Sequence[Window]]
    if judge.judges_blank:
        chunks = [[Window(0, text)] for text in texts]
    else:
        chunks = await asyncio.gather(*(split_text(judge, text) for text in texts))
    answers = iter(await call_judge(rule, [window for windows in chunks for window in windows], context))
    return [[detection for _ in windows for detection in next(answers)] for windows in chunks]

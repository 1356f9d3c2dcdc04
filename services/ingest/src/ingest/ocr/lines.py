"""Recognised lines → sections, by where the lines are."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ingest.ocr.recogniser import Recognised
from ingest.parsing.content import Section
from ingest.parsing.text.clean import flat
from ingest.parsing.text.layout import Style
from ingest.parsing.text.lines import Line
from ingest.parsing.text.outline import Outline

_ALIKE = (0.7, 1.4)
"""Lines whose height is this share of the usual one have the usual size of letters: heights are not exact."""
_BESIDE = 0.5
"""Lines are in one row whose heights differ by less than this many letter sizes."""


def sections(found: Sequence[Recognised]) -> tuple[Section, ...]:
    """The text of a picture, in reading order."""
    lines = placed(found)
    outline = Outline()
    Style.of({1: lines}).fill(outline, lines, 1)
    return outline.end_page()


def confidence(found: Sequence[Recognised]) -> float:
    """How sure the text of a picture is, 0 to 1: the mean over its letters, with two decimals."""
    letters = sum(len(line.text) for line in found)
    return round(sum(len(line.text) * line.confidence for line in found) / letters, 2) if letters else 0.0


def placed(found: Sequence[Recognised]) -> list[Line]:
    """The lines from the top down, straightened: a page that lies askew has rows that do not."""
    told = [(line, text) for line in found if (text := flat(line.text))]
    if not told:
        return []
    angle = statistics.median(_angle(line) for line, _ in told)
    cosine, sine = math.cos(-angle), math.sin(-angle)
    heights = [math.dist(line.corners[0], line.corners[3]) for line, _ in told]
    usual = statistics.median(heights)
    lines = []
    for (line, text), height in zip(told, heights, strict=True):
        turned = [(x * cosine - y * sine, x * sine + y * cosine) for x, y in line.corners]
        size = usual if _ALIKE[0] * usual <= height <= _ALIKE[1] * usual else height
        left, right = min(x for x, _ in turned), max(x for x, _ in turned)
        # The middle stays where it is when a line has letters that go below it.
        middle = sum(y for _, y in turned) / len(turned)
        lines.append(Line(text, left, right, -middle, size))
    return _aligned(lines)


def _aligned(lines: Sequence[Line]) -> list[Line]:
    """The lines from the top down, those beside each other at the same height: the measured one is not exact."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.baseline):
        row = rows[-1] if rows else []
        is_beside = all(other.right <= line.left or line.right <= other.left for other in row)
        if row and is_beside and row[0].baseline - line.baseline < _BESIDE * line.size:
            row.append(line)
        else:
            rows.append([line])
    return [
        replace(line, baseline=statistics.fmean(other.baseline for other in row))
        for row in rows
        for line in sorted(row, key=lambda line: line.left)
    ]


def _angle(line: Recognised) -> float:
    (left, top), (right, other) = line.corners[:2]
    return math.atan2(other - top, right - left)

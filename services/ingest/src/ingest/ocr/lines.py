"""Turns recognised lines into sections, by their positions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ingest.ocr.recogniser import RecognisedLine
from ingest.parsing.content import Section
from ingest.parsing.text.clean import flat
from ingest.parsing.text.layout import Style
from ingest.parsing.text.lines import Line
from ingest.parsing.text.outline import Outline

_SIMILAR_HEIGHTS = (0.7, 1.4)
"""Lines whose height is within these multiples of the median get the median size, because heights are not exact."""
_SAME_ROW = 0.5
"""Lines whose baselines differ by less than this, as a multiple of the font size, are in the same row."""


def sections(found: Sequence[RecognisedLine]) -> tuple[Section, ...]:
    """Return the text of a picture in reading order."""
    lines = deskewed(found)
    outline = Outline()
    Style.of({1: lines}).fill(outline, lines, 1)
    return outline.end_page()


def confidence(found: Sequence[RecognisedLine]) -> float:
    """Return the mean confidence of the letters, 0 to 1, with two decimals; 0 if the picture has no text."""
    letters = sum(len(line.text) for line in found)
    return round(sum(len(line.text) * line.confidence for line in found) / letters, 2) if letters else 0.0


def deskewed(found: Sequence[RecognisedLine]) -> list[Line]:
    """Return the lines from top to bottom, with the rotation of a skewed page removed."""
    readable = [(line, text) for line in found if (text := flat(line.text))]
    if not readable:
        return []
    angle = statistics.median(_angle(line) for line, _ in readable)
    cosine, sine = math.cos(-angle), math.sin(-angle)
    heights = [math.dist(line.corners[0], line.corners[3]) for line, _ in readable]
    median_height = statistics.median(heights)
    lines = []
    for (line, text), height in zip(readable, heights, strict=True):
        rotated = [(x * cosine - y * sine, x * sine + y * cosine) for x, y in line.corners]
        size = (
            median_height
            if _SIMILAR_HEIGHTS[0] * median_height <= height <= _SIMILAR_HEIGHTS[1] * median_height
            else height
        )
        left, right = min(x for x, _ in rotated), max(x for x, _ in rotated)
        # The middle does not depend on whether the line has descenders.
        middle = sum(y for _, y in rotated) / len(rotated)
        lines.append(Line(text, left, right, -middle, size))
    return _aligned(lines)


def _aligned(lines: Sequence[Line]) -> list[Line]:
    """Return the lines from top to bottom. Lines in a row get one baseline, because positions are not exact."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.baseline):
        row = rows[-1] if rows else []
        is_beside = all(other.right <= line.left or line.right <= other.left for other in row)
        if row and is_beside and row[0].baseline - line.baseline < _SAME_ROW * line.size:
            row.append(line)
        else:
            rows.append([line])
    return [
        replace(line, baseline=statistics.fmean(other.baseline for other in row))
        for row in rows
        for line in sorted(row, key=lambda line: line.left)
    ]


def _angle(line: RecognisedLine) -> float:
    (left, left_y), (right, right_y) = line.corners[:2]
    return math.atan2(right_y - left_y, right - left)

"""Determines the reading order of boxes on a slide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """The position of a box, in any unit; the vertical axis points down."""

    left: float
    top: float
    right: float
    bottom: float


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Return the indexes of boxes in reading order.

    Columns are read one after the other, each column from top to bottom. A box across several columns separates the
    boxes above it from the boxes below it.
    """
    return _ordered(boxes, list(range(len(boxes))))


def _ordered(boxes: Sequence[Box], indexes: list[int]) -> list[int]:
    for groups in (_columns(boxes, indexes), _bands(boxes, indexes)):
        if len(groups) > 1:
            return [index for group in groups for index in _ordered(boxes, group)]
    return sorted(indexes, key=lambda index: (boxes[index].top, boxes[index].left))


def _columns(boxes: Sequence[Box], indexes: Sequence[int]) -> list[list[int]]:
    return _groups(indexes, lambda index: (boxes[index].left, boxes[index].right))


def _bands(boxes: Sequence[Box], indexes: Sequence[int]) -> list[list[int]]:
    """Return bands of boxes from top to bottom.

    A row joins the band above it if one of the two has several columns, and both together still have several.
    """
    bands: list[list[int]] = []
    for row in _groups(indexes, lambda index: (boxes[index].top, boxes[index].bottom)):
        is_divided = bands and max(len(_columns(boxes, band)) for band in (bands[-1], row)) > 1
        if is_divided and len(_columns(boxes, bands[-1] + row)) > 1:
            bands[-1] += row
        else:
            bands.append(row)
    return bands


def _groups(indexes: Sequence[int], span: Callable[[int], tuple[float, float]]) -> list[list[int]]:
    """Split boxes into groups whose spans do not overlap."""
    groups: list[list[int]] = []
    end = 0.0
    for index in sorted(indexes, key=span):
        start, stop = span(index)
        if not groups or start >= end:
            groups.append([])
            end = stop
        groups[-1].append(index)
        end = max(end, stop)
    return groups

"""The reading order of boxes on a slide."""

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

    Columns are read one after the other, each from top to bottom. A box across several columns separates the boxes
    above it from those below.
    """
    return _ordered(boxes, list(range(len(boxes))))


def _ordered(boxes: Sequence[Box], places: list[int]) -> list[int]:
    for groups in (_columns(boxes, places), _bands(boxes, places)):
        if len(groups) > 1:
            return [place for group in groups for place in _ordered(boxes, group)]
    return sorted(places, key=lambda place: (boxes[place].top, boxes[place].left))


def _columns(boxes: Sequence[Box], places: Sequence[int]) -> list[list[int]]:
    return _groups(places, lambda place: (boxes[place].left, boxes[place].right))


def _bands(boxes: Sequence[Box], places: Sequence[int]) -> list[list[int]]:
    """Return boxes from top to bottom; rows of boxes in the same columns form one band."""
    bands: list[list[int]] = []
    for row in _groups(places, lambda place: (boxes[place].top, boxes[place].bottom)):
        is_divided = bands and max(len(_columns(boxes, each)) for each in (bands[-1], row)) > 1
        if is_divided and len(_columns(boxes, bands[-1] + row)) > 1:
            bands[-1] += row
        else:
            bands.append(row)
    return bands


def _groups(places: Sequence[int], span: Callable[[int], tuple[float, float]]) -> list[list[int]]:
    """Split boxes into groups whose spans do not overlap."""
    groups: list[list[int]] = []
    end = 0.0
    for place in sorted(places, key=span):
        start, stop = span(place)
        if not groups or start >= end:
            groups.append([])
            end = stop
        groups[-1].append(place)
        end = max(end, stop)
    return groups

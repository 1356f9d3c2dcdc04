"""The order in which people read boxes on a slide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """Where a box is; lengths in any unit, the vertical axis points down."""

    left: float
    top: float
    right: float
    bottom: float


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Return the places of boxes in reading order.

    Columns come one after the other, each from top to bottom; a box that is as wide as several columns divides what
    is above it from what is below.
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
    """Boxes from top to bottom; rows of boxes in the same columns are one band."""
    bands: list[list[int]] = []
    for row in _groups(places, lambda place: (boxes[place].top, boxes[place].bottom)):
        is_divided = bands and max(len(_columns(boxes, each)) for each in (bands[-1], row)) > 1
        if is_divided and len(_columns(boxes, bands[-1] + row)) > 1:
            bands[-1] += row
        else:
            bands.append(row)
    return bands


def _groups(places: Sequence[int], span: Callable[[int], tuple[float, float]]) -> list[list[int]]:
    """Divide boxes where a line between them meets none."""
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

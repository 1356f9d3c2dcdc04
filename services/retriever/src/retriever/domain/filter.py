"""Filters: conditions that a document or a chunk must meet."""

from collections.abc import Sequence
from dataclasses import dataclass

Scalar = str | int | float | bool
Field = tuple[str, Scalar]
"""A name and a value. A field with a list yields one pair for each item."""


@dataclass(frozen=True, slots=True)
class MatchAny:
    """Holds if the field, or an item of it if it is a list, equals one of the values.

    Numbers are compared by value: 1 equals 1.0. But true, 1 and "1" differ.
    """

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Holds if the field, or an item of it if it is a list, is a number within the given bounds.

    A boolean is not a number.
    """

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Holds if all of ``must`` and none of ``must_not`` hold, and at least one of ``should`` if it is not empty."""

    must: tuple["Condition", ...] = ()
    should: tuple["Condition", ...] = ()
    must_not: tuple["Condition", ...] = ()

    def __bool__(self) -> bool:
        """Return whether the filter has conditions."""
        return bool(self.must or self.should or self.must_not)


Condition = MatchAny | Range | Filter


NO_FILTER = Filter()


PLAIN_FIELDS = frozenset({"document_id", "sourcefile", "category", "language", "page"})


METADATA_PREFIX = "metadata."


def is_field(name: str) -> bool:
    """Return whether a condition may test the field: one of `PLAIN_FIELDS`, or ``metadata.<key>``.

    Dots in the key separate the keys of nested objects.
    """
    return name in PLAIN_FIELDS or (name.startswith(METADATA_PREFIX) and name != METADATA_PREFIX)


def holds(condition: Condition, fields: Sequence[Field]) -> bool:
    """Return whether the fields meet the condition, for stores whose engine cannot evaluate conditions."""
    match condition:
        case Filter():
            return (
                all(holds(child, fields) for child in condition.must)
                and (not condition.should or any(holds(child, fields) for child in condition.should))
                and not any(holds(child, fields) for child in condition.must_not)
            )
        case MatchAny():
            return any(
                _equal(value, expected)
                for name, value in fields
                if name == condition.field
                for expected in condition.values
            )
        case Range():
            return any(
                _within(condition, value)
                for name, value in fields
                if name == condition.field and isinstance(value, int | float) and not isinstance(value, bool)
            )


def _equal(left: Scalar, right: Scalar) -> bool:
    # Python's True equals 1.
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _within(bounds: Range, value: float) -> bool:
    return (
        (bounds.gt is None or value > bounds.gt)
        and (bounds.gte is None or value >= bounds.gte)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.lte is None or value <= bounds.lte)
    )

"""Conditions and access lists by plain arithmetic: what they mean, for every store."""

from collections.abc import Sequence

from retriever import access
from retriever.domain import Condition, Document, Filter, MatchAny, Range, Scalar
from retriever.fields import Field
from retriever.store.port import Scope


def is_visible(scope: Scope, document: Document, fields: Sequence[Field]) -> bool:
    """Whether a document, or a chunk of it, with these fields is in scope."""
    return (scope.readers is None or not scope.readers.isdisjoint(access.readers(document.access))) and _holds(
        scope.filter, fields
    )


def _holds(condition: Condition, fields: Sequence[Field]) -> bool:
    match condition:
        case Filter():
            return (
                all(_holds(each, fields) for each in condition.must)
                and (not condition.should or any(_holds(each, fields) for each in condition.should))
                and not any(_holds(each, fields) for each in condition.must_not)
            )
        case MatchAny():
            return any(
                _equal(value, wanted)
                for name, value in fields
                if name == condition.field
                for wanted in condition.values
            )
        case Range():
            return any(
                _within(condition, value)
                for name, value in fields
                if name == condition.field and isinstance(value, int | float) and not isinstance(value, bool)
            )


def _equal(one: Scalar, other: Scalar) -> bool:
    # Python's True equals 1.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _within(bounds: Range, value: float) -> bool:
    return (
        (bounds.gt is None or value > bounds.gt)
        and (bounds.gte is None or value >= bounds.gte)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.lte is None or value <= bounds.lte)
    )

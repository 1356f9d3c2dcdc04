"""Conversion of filters of ``retriever/v1`` to the domain."""

import math
from collections.abc import Sequence

import msgspec
from causeway.retriever.v1 import filter_pb2
from servicekit.errors import InvalidRequest

from retriever.domain.filter import Condition, Filter, MatchAny, Range, Scalar, is_field

MAX_CONDITIONS = 10_000
"""Maximum number of conditions and values in one filter."""


def to_filter(message: filter_pb2.Filter) -> Filter:
    """Return the filter of a message.

    Raises:
        InvalidRequest: A condition is wrong. The error names it, for example ``filter.must[0].match_any.field``.
    """
    return _Filters().filter(message, "filter")


class _Filters:
    """Converts one filter, with a limit of its total size."""

    def __init__(self) -> None:
        self._left = MAX_CONDITIONS

    def filter(self, message: filter_pb2.Filter, path: str) -> Filter:
        return Filter(
            self._all(message.must, f"{path}.must"),
            self._all(message.should, f"{path}.should"),
            self._all(message.must_not, f"{path}.must_not"),
        )

    def _all(self, messages: Sequence[filter_pb2.Condition], path: str) -> tuple[Condition, ...]:
        self._count(len(messages))
        return tuple(self._condition(message, f"{path}[{place}]") for place, message in enumerate(messages))

    def _condition(self, message: filter_pb2.Condition, path: str) -> Condition:
        match message.WhichOneof("condition"):
            case "match_any":
                return self._match_any(message.match_any, f"{path}.match_any")
            case "range":
                return _range(message.range, f"{path}.range")
            case "filter":
                return self.filter(message.filter, f"{path}.filter")
            case _:
                raise InvalidRequest("The condition is empty.", field=path)

    def _match_any(self, message: filter_pb2.MatchAny, path: str) -> MatchAny:
        self._count(len(message.json_values))
        values = (_scalar(value, f"{path}.json_values[{n}]") for n, value in enumerate(message.json_values))
        return MatchAny(_field(message.field, path), tuple(values))

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise InvalidRequest(f"A filter has at most {MAX_CONDITIONS} conditions and values.", field="filter")


def _range(message: filter_pb2.Range, path: str) -> Range:
    bounds = {name: getattr(message, name) for name in ("gt", "gte", "lt", "lte") if message.HasField(name)}
    if not bounds or any(math.isnan(bound) for bound in bounds.values()):
        raise InvalidRequest("A range has at least one bound, and bounds are numbers.", field=path)
    return Range(_field(message.field, path), **bounds)


def _field(name: str, path: str) -> str:
    if not is_field(name):
        raise InvalidRequest(
            f"There is no field {name!r}. Fields are document_id, sourcefile, category, language, page and "
            "metadata.<key>.",
            field=f"{path}.field",
        )
    return name


def _scalar(json: str, path: str) -> Scalar:
    try:
        value: Scalar = msgspec.json.decode(json, type=str | int | float | bool)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"Not a JSON string, number, true or false: {json[:100]!r}", field=path) from error
    return value

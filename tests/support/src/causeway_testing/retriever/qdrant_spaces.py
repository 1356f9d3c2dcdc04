"""The calls that the stand-in refuses for a collection that many indexes share.

A call on points must name one incarnation of an index: in its filter, in the filter of the points that a BM25 query
counts for its IDF, in the points that it writes and in the condition of the write. Exceptions are reads by ids,
whose answers the reader checks, and lists of the entries of indexes and of marks.
"""

from collections.abc import Iterable
from typing import Any

FIELD = "incarnation"
_LISTED = ["kind:index"], ["kind:mark"]


def check(name: str, request: Any) -> None:
    """Check a call.

    Args:
        name: The name of the call.
        request: The message of the call.

    Raises:
        ValueError: The call reaches points of many indexes.
    """
    if "-space." not in getattr(request, "collection_name", ""):
        return
    if not all(_is_limited(name, request)):
        raise ValueError(f"{name} on {request.collection_name} names no {FIELD}")


def _is_limited(name: str, request: Any) -> Iterable[bool]:
    match name:
        case "Scroll":
            yield _names_incarnation(request.filter) or _lists_entries(request.filter)
        case "Count":
            yield _names_incarnation(request.filter)
        case "Delete" if request.DESCRIPTOR.name == "DeletePoints":
            yield _names_incarnation(request.points.filter)
        case "SetPayload":
            yield _names_incarnation(request.points_selector.filter)
        case "Upsert":
            yield _names_incarnation(request.update_filter)
            yield from (FIELD in point.payload for point in request.points)
        case "Query":
            yield from _query(request)
        case "QueryBatch":
            for each in request.query_points:
                yield from _query(each)
        case "Get" if request.DESCRIPTOR.name == "GetPoints":
            yield FIELD in request.with_payload.include.fields or request.with_payload.enable


def _query(query: Any) -> Iterable[bool]:
    yield _names_incarnation(query.filter)
    if query.using == "bm25":
        yield _names_incarnation(query.params.idf.corpus)
    for each in query.prefetch:
        yield from _query(each)


def _names_incarnation(filter_: Any) -> bool:
    return any(each.field.key == FIELD and each.field.match.keyword for each in filter_.must)


def _lists_entries(filter_: Any) -> bool:
    return any(list(each.field.match.keywords.strings) in _LISTED for each in filter_.must)

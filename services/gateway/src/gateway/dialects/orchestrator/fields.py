"""Bodies of the guardrails orchestrator's routes, refused in its words."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, Unprocessable

from gateway.dialects import json_fields
from gateway.dialects.orchestrator.errors import NotJson, unprocessable
from gateway.domain import Action, Detector, DetectorKind, Detectors

Raw = dict[str, msgspec.Raw]

CONTENTS = frozenset((DetectorKind.CONTENTS,))

# The reference joins so many names by "or".
_FEW = 2

_PARAMS_OBJECT = "the parameters of a detector must be an object"


def members(body: bytes) -> Raw:
    """The members of a body.

    Raises:
        NotJson: It is no JSON.
        Unprocessable: It is no object.
    """
    try:
        return json_fields.members(body)
    except InvalidRequest as error:
        try:
            msgspec.json.decode(body)
        except (ValueError, RecursionError):
            reason = error.message.removeprefix("The body is not valid JSON: ")
            raise NotJson(f"Failed to parse the request body as JSON: {reason}", field="body") from error
        raise unprocessable(error) from error


def refused(message: str, field: str) -> Unprocessable:
    """What is wrong with a field."""
    return Unprocessable(message, field=field)


def missing(name: str) -> Unprocessable:
    """A field is not there."""
    return refused(f"missing field `{name}`", name)


def unknown(name: str, known: Sequence[str], field: str) -> Unprocessable:
    """A field is none of those that are known."""
    names = [f"`{each}`" for each in known]
    listed = " or ".join(names) if len(names) <= _FEW else f"one of {', '.join(names)}"
    return refused(f"unknown field `{name}`, expected {listed}", field)


def only(raw: Raw, required: Collection[str], optional: Collection[str] = ()) -> None:
    """Nothing where the members are those that a route takes.

    Raises:
        Unprocessable: One is missing, or is none of the route's.
    """
    for name in raw:
        if name not in required and name not in optional:
            raise unknown(name, (*required, *optional), name)
    for name in required:
        if name not in raw:
            raise missing(name)


def text(raw: Raw, name: str, *, empty: bool = False) -> str:
    """A string.

    Raises:
        Unprocessable: It is missing, is something else, or is empty and must not be.
    """
    if name not in raw:
        raise missing(name)
    value = _value(raw, name)
    if not isinstance(value, str):
        raise refused(f"`{name}` must be a string", name)
    if not value and not empty:
        raise refused(f"`{name}` must not be empty", name)
    return value


def texts(raw: Raw, name: str) -> tuple[str, ...]:
    """A list of strings, not empty.

    Raises:
        Unprocessable: It is missing, is something else, or is empty.
    """
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise refused(f"`{name}` must be a list of strings", name)
    if not value:
        raise refused(f"`{name}` must not be empty", name)
    return tuple(value)


def objects(raw: Raw, name: str, *, empty: bool = False) -> list[dict[str, Any]]:
    """A list of objects.

    Raises:
        Unprocessable: It is missing, is something else, or is empty and must not be.
    """
    if name not in raw:
        raise missing(name)
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise refused(f"`{name}` must be a list of objects", name)
    if not value and not empty:
        raise refused(f"`{name}` must not be empty", name)
    return value


def choice(raw: Raw, name: str, allowed: Collection[str]) -> str:
    """One of a few words; empty where nothing is said.

    Raises:
        Unprocessable: It is none of them.
    """
    value = _value(raw, name) if name in raw else None
    if value is None:
        return ""
    if value not in allowed:
        raise refused(f"`{name}` must be one of {', '.join(f'`{each}`' for each in allowed)}", name)
    return str(value)


def detectors(raw: Raw, name: str = "detectors") -> tuple[Detector, ...]:
    """The detectors of a route that only detects: ``{id: parameters}``; what they find leads to nothing.

    Raises:
        Unprocessable: There are none.
    """
    if name not in raw:
        raise missing(name)
    chosen = _value(raw, name)
    if not isinstance(chosen, dict):
        raise refused(f"`{name}` must be an object", name)
    if not chosen:
        raise refused(f"`{name}` is required", name)
    return tuple(_detector(detector_id, params, f"{name}.{detector_id}") for detector_id, params in chosen.items())


def kinds(
    allowed: frozenset[DetectorKind], asked: Iterable[Detector]
) -> tuple[tuple[str, frozenset[DetectorKind]], ...]:
    """What `Turn.detector_kinds` says of detectors that may look at these."""
    return tuple((each.detector_id, allowed) for each in asked)


def required(asked: Detectors) -> None:
    """Nothing where there is a detector on some side.

    Raises:
        Unprocessable: There is none.
    """
    if asked == Detectors():
        raise refused("`detectors` is required", "detectors")


def _detector(detector_id: str, params: Any, field: str) -> Detector:
    if params is not None and not isinstance(params, dict):
        raise refused(_PARAMS_OBJECT, field)
    return Detector(detector_id, Action.REPORT, params_json=msgspec.json.encode(params or {}))


def _value(raw: Raw, name: str) -> Any:
    if name not in raw:
        raise missing(name)
    try:
        return json_fields.value(raw[name], name)
    except InvalidRequest as error:
        raise unprocessable(error) from error

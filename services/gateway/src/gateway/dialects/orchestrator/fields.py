"""Validation of the guardrails orchestrator's request bodies, with its messages."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, Unprocessable

from gateway.dialects import json_fields
from gateway.dialects.orchestrator.errors import NotJson, unprocessable
from gateway.domain import Action, Detector, DetectorKind, Detectors

Raw = dict[str, msgspec.Raw]

CONTENTS = frozenset((DetectorKind.CONTENTS,))

# The reference joins up to this many names by "or".
_FEW = 2

_PARAMS_OBJECT = "the parameters of a detector must be an object"


def members(body: bytes) -> Raw:
    """Return the members of a body.

    Raises:
        NotJson: It is not JSON.
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
    """Return the error of a field."""
    return Unprocessable(message, field=field)


def missing(name: str) -> Unprocessable:
    """Return the error of a missing field."""
    return refused(f"missing field `{name}`", name)


def unknown(name: str, known: Sequence[str], field: str) -> Unprocessable:
    """Return the error of an unknown field."""
    names = [f"`{each}`" for each in known]
    listed = " or ".join(names) if len(names) <= _FEW else f"one of {', '.join(names)}"
    return refused(f"unknown field `{name}`, expected {listed}", field)


def only(raw: Raw, required: Collection[str], optional: Collection[str] = ()) -> None:
    """Check that the members are those of a route.

    Raises:
        Unprocessable: A member is missing or unknown.
    """
    for name in raw:
        if name not in required and name not in optional:
            raise unknown(name, (*required, *optional), name)
    for name in required:
        if name not in raw:
            raise missing(name)


def text(raw: Raw, name: str, *, empty: bool = False) -> str:
    """Return a string.

    Raises:
        Unprocessable: It is missing, of another type, or empty and must not be.
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
    """Return a non-empty list of strings.

    Raises:
        Unprocessable: It is missing, of another type, or empty.
    """
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise refused(f"`{name}` must be a list of strings", name)
    if not value:
        raise refused(f"`{name}` must not be empty", name)
    return tuple(value)


def objects(raw: Raw, name: str, *, empty: bool = False) -> list[dict[str, Any]]:
    """Return a list of objects.

    Raises:
        Unprocessable: It is missing, of another type, or empty and must not be.
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
    """Return one of some words; empty if absent.

    Raises:
        Unprocessable: It is another word.
    """
    value = _value(raw, name) if name in raw else None
    if value is None:
        return ""
    if value not in allowed:
        raise refused(f"`{name}` must be one of {', '.join(f'`{each}`' for each in allowed)}", name)
    return str(value)


def detectors(raw: Raw, name: str = "detectors") -> tuple[Detector, ...]:
    """Return the detectors of a detection-only route: ``{id: parameters}``; their findings have no action.

    Raises:
        Unprocessable: The list is empty.
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
    allowed: frozenset[DetectorKind], requested: Iterable[Detector]
) -> tuple[tuple[str, frozenset[DetectorKind]], ...]:
    """Return `DetectionOptions.kinds` for detectors that may be of these kinds."""
    return tuple((each.detector_id, allowed) for each in requested)


def required(requested: Detectors) -> None:
    """Check that some direction has a detector.

    Raises:
        Unprocessable: There is no detector.
    """
    if requested == Detectors():
        raise refused("`detectors` is required", "detectors")


def _detector(detector_id: str, params: Any, field: str) -> Detector:
    if params is not None and not isinstance(params, dict):
        raise refused(_PARAMS_OBJECT, field)
    return Detector(detector_id, Action.REPORT, params_json=msgspec.json.encode(params or {}), requested=True)


def _value(raw: Raw, name: str) -> Any:
    if name not in raw:
        raise missing(name)
    try:
        return json_fields.value(raw[name], name)
    except InvalidRequest as error:
        raise unprocessable(error) from error

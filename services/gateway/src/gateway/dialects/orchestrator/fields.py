"""Validates the request bodies of the guardrails orchestrator's API.

The error messages are those of the reference implementation.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, Unprocessable

from gateway.dialects import json_fields
from gateway.dialects.orchestrator.errors import NotJson, unprocessable
from gateway.domain import Action, Detector, DetectorKind, Detectors

Raw = dict[str, msgspec.Raw]

CONTENTS = frozenset((DetectorKind.CONTENTS,))
"""The kind of the detectors that judge a text alone, without a conversation, a prompt or a document."""

# The reference implementation joins at most two names by "or".
_MAX_OR_NAMES = 2


def members(body: bytes) -> Raw:
    """Return the members of a body.

    Raises:
        NotJson: The body is not JSON.
        Unprocessable: The body is not an object.
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


def invalid(message: str, field: str) -> Unprocessable:
    """Return the error for an invalid field."""
    return Unprocessable(message, field=field)


def missing(name: str) -> Unprocessable:
    """Return the error for a missing field."""
    return invalid(f"missing field `{name}`", name)


def unknown(name: str, known: Sequence[str], field: str) -> Unprocessable:
    """Return the error for an unknown field.

    Args:
        name: The name of the field.
        known: The names of the known fields.
        field: The path of the field in the request.
    """
    names = [f"`{known_name}`" for known_name in known]
    listed = " or ".join(names) if len(names) <= _MAX_OR_NAMES else f"one of {', '.join(names)}"
    return invalid(f"unknown field `{name}`, expected {listed}", field)


def check_members(raw: Raw, required: Collection[str], optional: Collection[str] = ()) -> None:
    """Check that a body has all required members and no unknown member.

    Raises:
        Unprocessable: A member is missing or unknown.
    """
    for name in raw:
        if name not in required and name not in optional:
            raise unknown(name, (*required, *optional), name)
    for name in required:
        if name not in raw:
            raise missing(name)


def text(raw: Raw, name: str, *, allow_empty: bool = False) -> str:
    """Return a string. It may be empty only if ``allow_empty`` is true.

    Raises:
        Unprocessable: The value is missing, empty or not a string.
    """
    value = _value(raw, name)
    if not isinstance(value, str):
        raise invalid(f"`{name}` must be a string", name)
    if not value and not allow_empty:
        raise invalid(f"`{name}` must not be empty", name)
    return value


def texts(raw: Raw, name: str) -> tuple[str, ...]:
    """Return a list of one or more strings.

    Raises:
        Unprocessable: The value is missing, empty or of another type.
    """
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise invalid(f"`{name}` must be a list of strings", name)
    if not value:
        raise invalid(f"`{name}` must not be empty", name)
    return tuple(value)


def objects(raw: Raw, name: str, *, allow_empty: bool = False) -> list[dict[str, Any]]:
    """Return a list of objects. It may be empty only if ``allow_empty`` is true.

    Raises:
        Unprocessable: The value is missing, empty or of another type.
    """
    value = _value(raw, name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise invalid(f"`{name}` must be a list of objects", name)
    if not value and not allow_empty:
        raise invalid(f"`{name}` must not be empty", name)
    return value


def choice(raw: Raw, name: str, allowed: Collection[str]) -> str:
    """Return one of the allowed words, or an empty string if the member is absent or null.

    Raises:
        Unprocessable: The value is not an allowed word.
    """
    value = _value(raw, name) if name in raw else None
    if value is None:
        return ""
    if value not in allowed:
        raise invalid(f"`{name}` must be one of {', '.join(f'`{word}`' for word in allowed)}", name)
    return str(value)


def detectors(raw: Raw) -> tuple[Detector, ...]:
    """Return the detectors of a detection-only route, parsed from ``{id: parameters}``. They only report findings.

    Raises:
        Unprocessable: The member is missing, empty or invalid.
    """
    by_id = _value(raw, "detectors")
    if not isinstance(by_id, dict):
        raise invalid("`detectors` must be an object", "detectors")
    if not by_id:
        raise invalid("`detectors` is required", "detectors")
    return tuple(_detector(detector_id, params) for detector_id, params in by_id.items())


def kinds(
    allowed: frozenset[DetectorKind], requested: Iterable[Detector]
) -> tuple[tuple[str, frozenset[DetectorKind]], ...]:
    """Return the value of `DetectionOptions.kinds`, in which each requested detector has the allowed kinds."""
    return tuple((detector.detector_id, allowed) for detector in requested)


def require_detectors(requested: Detectors) -> None:
    """Check that a request has at least one detector.

    Raises:
        Unprocessable: The request has no detector.
    """
    if requested == Detectors():
        raise invalid("`detectors` is required", "detectors")


def _detector(detector_id: str, params: Any) -> Detector:
    if params is not None and not isinstance(params, dict):
        field = f"detectors.{detector_id}"
        raise invalid(f"`{field}` must be an object with the detector's parameters", field)
    return Detector(detector_id, Action.REPORT, params_json=msgspec.json.encode(params or {}), requested=True)


def _value(raw: Raw, name: str) -> Any:
    """Return the parsed value of a required member.

    Raises:
        Unprocessable: The member is missing or cannot be read.
    """
    if name not in raw:
        raise missing(name)
    try:
        return json_fields.value(raw[name], name)
    except InvalidRequest as error:
        raise unprocessable(error) from error

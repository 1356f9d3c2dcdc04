"""Parameters of detectors. The decoder refuses unknown names, because a misspelt parameter would weaken a check."""

import re
from typing import Annotated, Any, TypeVar

import msgspec

REPLACEMENT = "[REDACTED]"
"""The default replacement of a redacted span."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The common parameters of all detectors."""

    replacement: Annotated[
        str, msgspec.Meta(max_length=200, description="Text that replaces a span if the action is redact.")
    ] = REPLACEMENT
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1, description="Minimum score of a detection.")] = 0.0


P = TypeVar("P", bound=Params)


class BadParam(Exception):
    """A parameter is wrong.

    Args:
        path: The path of the parameter, for example ``regex[1]``; empty for all parameters together.
        message: The reason, for the client.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


def decode(raw: bytes, params_type: type[P]) -> P:
    """Decode the parameters of a detector; empty input is an empty object.

    Raises:
        BadParam: The input is not a JSON object, or a member is unknown, missing or invalid.
    """
    try:
        return msgspec.json.decode(raw or b"{}", type=params_type)
    except msgspec.ValidationError as error:
        raise _bad_param(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadParam("", f"not JSON: {error}") from error


_PLACE = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_MEMBER = re.compile(r"(?P<what>unknown|missing required) field `(?P<name>[^`]*)`")


def _bad_param(text: str) -> BadParam:
    # msgspec reports the path only in the text of its message.
    place = _PLACE.search(text)
    path = place["path"] if place else ""
    message = text[: place.start()] if place else text
    member = _MEMBER.search(message)
    if member is None:
        return BadParam(path, message[:1].lower() + message[1:])
    path = f"{path}.{member['name']}" if path else member["name"]
    return BadParam(path, "unknown field" if member["what"] == "unknown" else "missing field")


def decode_members(raw: bytes) -> dict[str, Any]:
    """Return the members of a JSON object; empty input is an empty object.

    Raises:
        BadParam: The input is not a JSON object.
    """
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise BadParam("", f"not a JSON object: {error}") from error

"""Parameters of detectors: strict, because a misspelt one would silently protect less."""

import re
from typing import Annotated, Any, TypeVar

import msgspec

REPLACEMENT = "[REDACTED]"
"""What stands for a redacted span unless the parameters say otherwise."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every detector can be told."""

    replacement: Annotated[
        str, msgspec.Meta(max_length=200, description="What stands for a span where the action is redact.")
    ] = REPLACEMENT
    threshold: Annotated[
        float, msgspec.Meta(ge=0, le=1, description="Detections with a lower score are passed over.")
    ] = 0.0


P = TypeVar("P", bound=Params)


class BadParam(Exception):
    """A parameter is wrong.

    Args:
        path: Which, below the parameters, for example ``regex[1]``; empty: the parameters as a whole.
        message: What is wrong with it, for the client.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message


def decode(raw: bytes, kind: type[P]) -> P:
    """The parameters that a JSON object gives; no bytes are an empty object.

    Raises:
        BadParam: Not JSON, not an object, or a member is unknown, missing or wrong.
    """
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _bad(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadParam("", f"not JSON: {error}") from error


_PLACE = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_MEMBER = re.compile(r"(?P<what>unknown|missing required) field `(?P<name>[^`]*)`")


def _bad(text: str) -> BadParam:
    # msgspec tells the place in its message only.
    place = _PLACE.search(text)
    path = place["path"] if place else ""
    message = text[: place.start()] if place else text
    member = _MEMBER.search(message)
    if member is None:
        return BadParam(path, message[:1].lower() + message[1:])
    path = f"{path}.{member['name']}" if path else member["name"]
    return BadParam(path, "unknown field" if member["what"] == "unknown" else "missing field")


def decode_members(raw: bytes) -> dict[str, Any]:
    """The members of a JSON object; no bytes are an empty one.

    Raises:
        BadParam: It is none.
    """
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise BadParam("", f"not a JSON object: {error}") from error

"""Validated access to the JSON of a request. An error names the path of the invalid field."""

from collections.abc import Collection, Iterable, Iterator, KeysView
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

_TYPE_NAMES = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "a list",
}

# The parser says the same of both.
_TRUNCATED = r"it ends too early, or an escape such as \ud800 lacks its second half"
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def members(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the unparsed members of a body, which must be an object.

    Raises:
        InvalidRequest: The body is not JSON, is nested too deeply, or is not an object.
    """
    try:
        return _object.decode(body)
    except msgspec.ValidationError:
        raise InvalidRequest("The body must be a JSON object.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body is not valid JSON: {_reason(error)}.") from None


def value(raw: msgspec.Raw | None, path: str) -> Any:
    """Return the parsed value of a member; None if the member is absent or null.

    Args:
        raw: The unparsed value.
        path: The path of the member in the request.

    Raises:
        InvalidRequest: The value has a number out of range or invalid UTF-8, or is nested too deeply.
    """
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} cannot be read: {_reason(error)}.", field=path) from None


def pick(raw: dict[str, msgspec.Raw], names: Iterable[str]) -> "Fields":
    """Parse the members with these names, if the object has them.

    Raises:
        InvalidRequest: See `value`.
    """
    return Fields({name: value(raw[name], name) for name in names if name in raw})


def without(raw: dict[str, msgspec.Raw], names: Collection[str]) -> bytes:
    """Return the object as JSON without these members. The other values remain unchanged, byte for byte."""
    return msgspec.json.encode({name: value for name, value in raw.items() if name not in names})


def _reason(error: Exception) -> str:
    # The client needs neither the parser's position nor the stack depth.
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    reason = str(error).partition(" - at ")[0]
    return _TRUNCATED if reason == "Input data was truncated" else reason


class Fields:
    """The members of an object. A member that is null counts as absent.

    The methods that return a typed value raise `InvalidRequest` if the value has another type or is not allowed.
    The error names the path of the member.

    Args:
        members: The object.
        path: The path of the object in the request, for error messages; empty for the body.
    """

    def __init__(self, members: dict[str, Any], path: str = "") -> None:
        self._members = members
        self._path = path

    def path(self, name: str) -> str:
        """Return the full path of a member."""
        return f"{self._path}.{name}" if self._path else name

    def invalid(self, name: str, problem: str) -> InvalidRequest:
        """Return the error for an invalid member."""
        path = self.path(name)
        return InvalidRequest(f"{path} {problem}.", field=path)

    def get(self, name: str) -> Any:
        """Return the member's value without validation; None if absent."""
        return self._members.get(name)

    def _typed(self, name: str, type_: type) -> Any:
        value = self._members.get(name)
        if value is None:
            return None
        is_valid = isinstance(value, (int, float)) if type_ is float else isinstance(value, type_)
        if not is_valid or (type_ is not bool and isinstance(value, bool)):
            raise self.invalid(name, f"must be {_TYPE_NAMES[type_]}")
        return value

    def text(self, name: str) -> str:
        """Return a string; the empty string if absent."""
        # Most members are absent, and this look-up is faster than a call to `_typed`.
        return "" if self._members.get(name) is None else self._typed(name, str)

    def flag(self, name: str) -> bool:
        """Return a boolean; false if absent."""
        return False if self._members.get(name) is None else self._typed(name, bool)

    def integer(self, name: str, minimum: int, maximum: int) -> int | None:
        """Return a whole number within bounds; None if absent."""
        value: int | None = self._typed(name, int)
        if value is not None and not minimum <= value <= maximum:
            raise self.invalid(name, f"must be between {minimum} and {maximum}")
        return value

    def number(self, name: str, minimum: float, maximum: float) -> float | None:
        """Return a number within bounds; None if absent."""
        value: float | None = self._typed(name, float)
        if value is not None and not minimum <= value <= maximum:
            raise self.invalid(name, f"must be between {minimum:g} and {maximum:g}")
        return value

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return a string, which must be one of the allowed values; the empty string if absent or empty."""
        value = self.text(name)
        if value and value not in allowed:
            raise self.invalid(name, f"must be one of {', '.join(allowed)}")
        return value

    def object(self, name: str) -> "Fields":
        """Return an object; an empty object if absent."""
        return Fields(self._typed(name, dict) or {}, self.path(name))

    def items(self, name: str) -> list[Any] | None:
        """Return a list; None if absent."""
        value: list[Any] | None = self._typed(name, list)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the strings of a list, or a single string as a tuple of one; an empty tuple if absent or empty."""
        value = self._members.get(name)
        if value is None or value == "":
            return ()
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise self.invalid(name, "must be a string or a list of strings")
        return tuple(listed)

    def names(self) -> KeysView[str]:
        """Return the names of all members, including null members."""
        return self._members.keys()

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield all members that are not null, in order."""
        for name, value in self._members.items():
            if value is not None:
                yield name, value

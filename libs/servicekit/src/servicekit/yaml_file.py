"""Reads YAML configuration files and validates them with pydantic. Errors name the file, the line and the key."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from servicekit.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
Key = tuple[str | int, ...]
_MAX_PROBLEMS = 10
_WRONG_VALUE = "this value does not fit its tag, or is a number with too many digits"


class BadFile(ValueError):
    """The file is invalid. The message is for the operator: it may contain names from the file, but no secrets."""


@contextlib.contextmanager
def setting_errors(setting: str) -> Iterator[None]:
    """Prefix errors from the block, which reads a setting's file, with the name of the environment variable.

    Args:
        setting: The field of the settings that contains the path, for example ``prices_file``.

    Raises:
        InvalidRequest: The file cannot be read, or is invalid; the message names the variable, file, line and key.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        # `from None`, because the cause may contain secrets from the file.
        raise InvalidRequest(f"CAUSEWAY_{setting.upper()}: {error}", field=setting) from None


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars like YAML 1.2: ``no``, ``on`` and dates are text.

    Dates stay text because they often name versions, for example of an API.
    """

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  # an attribute of the base class

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node.

        Raises:
            ConstructorError: The value does not fit its tag, for example ``!!int abc``. PyYAML itself raises errors
                without a position, and of any class.
        """
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            raise yaml.constructor.ConstructorError(None, None, _WRONG_VALUE, node.start_mark) from None


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))


class Document:
    """A YAML document with the positions of its keys.

    Args:
        raw: The bytes of the file.
        name: The name of the file in messages, for example its path.

    Raises:
        BadFile: The file is not valid YAML, has a duplicate key, or is nested too deeply.
    """

    def __init__(self, raw: bytes, name: str) -> None:
        self._name = name
        try:
            loader = _Loader(raw)
            try:
                self._root: yaml.Node | None = _root(loader)
                duplicate = next(_duplicate_keys(self._root, ()), None)
                if duplicate is not None:
                    raise self.wrong(duplicate, "duplicate key")
                self._value = {} if self._root is None else loader.construct_document(self._root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f", line {mark.line + 1}"
            raise BadFile(f"{name}{line}: this is not valid YAML: {_without_quote(error)}") from None
        except yaml.reader.ReaderError as error:
            raise BadFile(f"{name}{_undecodable(error, raw)}") from None
        except RecursionError:
            raise BadFile(f"{name}: this is nested too deeply") from None

    def validated(self, schema: type[M], context: Mapping[str, Any] | None = None) -> M:
        """Validate the content and return it as an instance of the model.

        Args:
            schema: The class of the model.
            context: The validation context that pydantic passes to the validators.

        Raises:
            BadFile: The content does not match; the message lists at most ten problems.
        """
        try:
            return schema.model_validate(self._value, context=dict(context or {}))
        except ValidationError as error:
            # `BadFile` is raised outside this block, because the cause would contain the values, also secrets.
            problems = error.errors(include_url=False, include_input=False)
        messages = [f"{self._place(problem['loc'], problem['type'])}: {_message(problem)}" for problem in problems]
        more = len(messages) - _MAX_PROBLEMS
        raise BadFile("; ".join(messages[:_MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else ""))

    def wrong(self, key: Key, message: str) -> BadFile:
        """Return an error that names the line and the path of a key, for the caller to raise."""
        return BadFile(f"{self._place(key, '')}: {message}")

    def check_names(self, key: str, names: Sequence[str], default: str, *, what: str) -> None:
        """Check that the names of a list's entries are unique and include the default.

        Args:
            key: The key of the list.
            names: The names of its entries, in order.
            default: The value of the file's key ``default``; empty if there is no default.
            what: A noun for an entry, for messages.

        Raises:
            BadFile: Two entries have the same name, or no entry has the name of the default.
        """
        for at, name in enumerate(names):
            if name in names[:at]:
                raise self.wrong((key, at), f"there are two {what}s '{name}'")
        if default and default not in names:
            known = ", ".join(sorted(names))
            raise self.wrong(("default",), f"there is no {what} '{default}'; use one of: {known}")

    def _place(self, key: Key, kind: str) -> str:
        """Return the file, line and path of a key.

        Pydantic adds parts to a location that are not in the file, for example the tag of a union. Skip them.
        """
        node, line, path = self._root, 1, ""
        for at, part in enumerate(key):
            found = _below(node, part)
            if found is None:
                if kind == "missing" and at == len(key) - 1:
                    path += f".{part}"
                continue
            line, node = found
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
        return f"{self._name}, line {line}" + (f", {path.removeprefix('.')}" if path else "")


def _root(loader: _Loader) -> yaml.Node | None:
    try:
        root: yaml.Node | None = loader.get_single_node()
    except (ValueError, OverflowError):  # from `chr`, for "\U00110000" in double quotes
        raise yaml.scanner.ScannerError(None, None, "unknown character escape", loader.get_mark()) from None
    return root


def _undecodable(error: yaml.reader.ReaderError, raw: bytes) -> str:
    """Return the line and the problem of a file that is not text."""
    if error.encoding == "utf-8":
        line = raw.count(b"\n", 0, error.position) + 1
        return f", line {line}: this is not valid YAML: it is not UTF-8; save the file as UTF-8"
    return ": this is not valid YAML: it contains characters that are not text"


def _below(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if key.value == str(part):
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = node.value[part]
        return value.start_mark.line + 1, value
    return None


def _duplicate_keys(node: yaml.Node | None, path: Key) -> Iterator[Key]:
    """Yield the path of each duplicate key. PyYAML itself would silently use the last value."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield (*path, key.value)
                seen.add(key.value)
                yield from _duplicate_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield from _duplicate_keys(value, (*path, at))


def _without_quote(error: yaml.MarkedYAMLError) -> str:
    """Return the problem without PyYAML's excerpt from the file, which may contain secrets."""
    if error.problem == _WRONG_VALUE:
        return _WRONG_VALUE
    if error.problem == "found unhashable key":
        return "a key is a list or an object; a text that begins with [ or { needs quotes"
    if error.problem == "but found another document":
        return "a second document begins here; a file has one document, so remove the ---"
    if isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError):
        return "unknown alias or tag; a text that begins with * or ! needs quotes"
    return error.problem or error.context or "it cannot be read"


def _message(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such key"
    if problem["type"] in ("missing", "union_tag_not_found"):
        return "this is missing"
    if problem["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "this must be an object with keys and values"  # pydantic's text names the class
    cause = problem.get("ctx", {}).get("error")
    return str(cause if isinstance(cause, ValueError) else problem["msg"])

"""Configuration files in YAML, checked by a pydantic model: what is wrong is said with file, line and key."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from servicekit.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
Key = tuple[str | int, ...]
_MOST_PROBLEMS = 10


class BadFile(ValueError):
    """The file cannot be used; the message is for the operator and holds no value of the file."""


@contextlib.contextmanager
def of_setting(setting: str) -> Iterator[None]:
    """Around whatever reads a file that a setting names: what is wrong with it is said with the setting.

    Args:
        setting: As the service's settings call it, say ``prices_file``.

    Raises:
        InvalidRequest: The file cannot be read, or is wrong; the message names variable, file, line and key.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        # Without its cause, which may hold what stands in the file.
        raise InvalidRequest(f"CAUSEWAY_{setting.upper()}: {error}", field=setting) from None


class _Loader(yaml.SafeLoader):
    """Plain scalars as in YAML 1.2: ``no`` and ``on`` are words, as are dates (versions, often)."""

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  # the base class's own way of telling it


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
    """A YAML document that remembers where its keys stand.

    Args:
        raw: The file's bytes.
        name: What to call it in messages, its path for example.

    Raises:
        BadFile: It is no YAML, or names a key twice.
    """

    def __init__(self, raw: bytes, name: str) -> None:
        self._name = name
        try:
            loader = _Loader(raw)
            try:
                self._root: yaml.Node | None = loader.get_single_node()
                problem = next(_twice(self._root, ()), None)
                if problem is not None:
                    raise self.wrong(problem, "this key stands here twice")
                self._value = {} if self._root is None else loader.construct_document(self._root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f", line {mark.line + 1}"
            raise BadFile(f"{name}{line}: this is no YAML: {_quoteless(error)}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise BadFile(f"{name}: this is no YAML: it holds characters that no text has") from None
        except RecursionError:
            raise BadFile(f"{name}: this is nested too deeply") from None

    def validated(self, schema: type[M], context: Mapping[str, Any] | None = None) -> M:
        """The content as a model.

        Args:
            schema: What it has to be.
            context: For the model's own validators.

        Raises:
            BadFile: It is something else; up to ten things that are wrong are named.
        """
        try:
            return schema.model_validate(self._value, context=dict(context or {}))
        except ValidationError as error:
            # Raised without its cause, which holds the values.
            problems = error.errors(include_url=False, include_input=False)
        said = [f"{self._place(problem['loc'], problem['type'])}: {_message(problem)}" for problem in problems]
        more = len(said) - _MOST_PROBLEMS
        raise BadFile("; ".join(said[:_MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else ""))

    def wrong(self, key: Key, message: str) -> BadFile:
        """The error that says what is wrong with a key."""
        return BadFile(f"{self._place(key, '')}: {message}")

    def check_names(self, key: str, names: Sequence[str], default: str, *, what: str) -> None:
        """Whether each entry of a list has a name of its own, and one of them has the default's.

        Args:
            key: The list's.
            names: Of its entries, in their order.
            default: What the file's ``default`` says; empty: nothing.
            what: An entry, in a word, for messages.

        Raises:
            BadFile: Two have the same name, or none has the default's.
        """
        for at, name in enumerate(names):
            if name in names[:at]:
                raise self.wrong((key, at), f"there are two {what}s '{name}'")
        if default and default not in names:
            known = ", ".join(sorted(names))
            raise self.wrong(("default",), f"there is no {what} '{default}'; there are: {known}")

    def _place(self, key: Key, kind: str) -> str:
        """File, line and path of a key; parts that the file does not have (pydantic's own) are left out."""
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


def _below(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):
            if key.value == str(part):
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = node.value[part]
        return value.start_mark.line + 1, value
    return None


def _twice(node: yaml.Node | None, path: Key) -> Iterator[Key]:
    """Keys that stand twice in one mapping: the library would keep the last one in silence."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield (*path, key.value)
                seen.add(key.value)
                yield from _twice(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield from _twice(value, (*path, at))


def _quoteless(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without the line that the library quotes, which may hold what is to be kept secret."""
    if isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError):
        return "an alias or a tag that is not known; a text that begins with * or ! needs quotes"
    return error.problem or error.context or "it cannot be read"


def _message(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such key"
    if problem["type"] in ("missing", "union_tag_not_found"):
        return "this is missing"
    cause = problem.get("ctx", {}).get("error")
    return str(cause if isinstance(cause, ValueError) else problem["msg"])

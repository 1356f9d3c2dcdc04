"""Checks the formats of texts. The checks run only in the child process, because parsers written in C can crash.

The checks of JSON, YAML and XML limit the nesting depth of a text before they build a value. The check of JSON
within a text relies on the recursion limit of Python's decoder. jsonschema-rs validates values against
schemas. It uses a linear regular expression engine and fetches no references.
"""

import json
import re
from typing import Any
from xml.etree.ElementTree import ParseError

import jsonschema_rs
import yaml
from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # has no types
from defusedxml.ElementTree import DefusedXMLParser  # type: ignore[import-untyped]  # has no types

FORMATS = ("json", "yaml", "xml", "json-within")
SCHEMA = "-with-schema:"

_MAX_DEPTH = 200
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels"
_MAX_ALIASES = 100  # an alias in YAML can repeat all earlier content
_PATTERN_BYTES = 1024 * 1024  # the maximum size of one compiled pattern of a schema
_OBJECT = re.compile(r"""\{\s*(?:"|\})""")  # the beginning of an object
_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def reason(text: str, text_format: str, required: int) -> str:
    """Return why a text is invalid in a format; empty if the text is valid.

    Args:
        text: The text.
        text_format: One of `FORMATS`, or ``json`` or ``yaml`` followed by `SCHEMA` and a JSON Schema.
        required: The minimum number of objects in the text, for ``json-within``.
    """
    name, _, schema = text_format.partition(SCHEMA)
    try:
        if name == "xml":
            _xml(text)
        elif name == "json-within":
            elements = _count_objects(text)
            if elements < required:
                return f"{elements} of {required} objects"
        else:
            value = _json(text) if name == "json" else _yaml(text)
            if schema:
                validator(schema).validate(value)
    except RecursionError:
        return _TOO_DEEP
    except (ValueError, yaml.YAMLError, ParseError, DefusedXmlException) as error:
        return (str(error).splitlines() or [type(error).__name__])[0][:200]
    return ""


def validator(schema: str) -> Any:
    """Return the validator of a JSON Schema.

    Raises:
        ValueError: The schema is not valid.
    """

    def refuse(address: str) -> Any:
        raise ValueError(f"{address} is not part of the schema")

    try:
        options = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)
        return jsonschema_rs.validator_for(_json(schema), retriever=refuse, pattern_options=options)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from error


def _json(text: str) -> Any:
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    # Python's decoder accepts `NaN` and `Infinity`. JSON does not have them (RFC 8259, 6).
    raise ValueError(f"{name} is not a JSON value")


def _yaml(text: str) -> Any:
    depth = aliases = 0
    # `yaml.parse` yields events without recursion and reads only a few tokens ahead.
    for event in yaml.parse(text, yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
    if aliases > _MAX_ALIASES:
        raise ValueError(f"more than {_MAX_ALIASES} aliases")
    value = yaml.load(text, yaml.CSafeLoader)
    if not isinstance(value, dict | list):
        # Any sentence would be a valid YAML scalar.
        raise ValueError("neither a mapping nor a sequence")  # noqa: TRY004  # an error of the text, not of a type
    return value


class _Depth:
    """A target of the XML parser that only checks the depth."""

    def __init__(self) -> None:
        self._depth = 0

    def start(self, *_: object) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)

    def end(self, *_: object) -> None:
        self._depth -= 1

    def close(self) -> None:
        """Do nothing; the parser needs this method."""


def _xml(text: str) -> None:
    parser = DefusedXMLParser(target=_Depth(), forbid_dtd=True)
    parser.feed(text)
    parser.close()


def _count_objects(text: str) -> int:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    elements, position = 0, 0
    while (match := _OBJECT.search(text, position)) is not None:
        _, position = decoder.raw_decode(text, match.start())
        elements += 1
    return elements

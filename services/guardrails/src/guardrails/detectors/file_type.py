"""The detector ``file_type``: texts that are not the JSON, YAML or XML that they should be.

Schemas are checked by jsonschema-rs with its linear engine for patterns, and without fetching what they refer to.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from xml.etree.ElementTree import ParseError

import jsonschema_rs
import msgspec
import yaml
from defusedxml import DefusedXmlException, ElementTree  # type: ignore[import-untyped]  # has no types

from guardrails.detectors.kind import Kind
from guardrails.detectors.params import BadParam, Params
from guardrails.detectors.whole import WholeTextDetector
from guardrails.domain import Detection

_TYPE = "file_type"
_INLINE = 4096
_LONGEST_SCHEMA = 20_000
_MOST_ALIASES = 100  # of YAML; each may repeat all before it
_SCHEMA = "-with-schema:"
_OBJECT = re.compile(r"""\{\s*(?:"|\})""")  # what looks like the beginning of an object

Check = Callable[[str], str]
"""Why a text is not of a type; empty where it is."""


class FileTypeParams(Params, frozen=True, kw_only=True):
    """Parameters of the detector."""

    file_type: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=_LONGEST_SCHEMA)]],
        msgspec.Meta(
            min_length=1,
            max_length=8,
            description="What a text must be, each of: `json`, `yaml`, `xml`, `json-within` (a text whose objects "
            "are JSON), `json-with-schema:` and `yaml-with-schema:`, each with a JSON Schema behind it.",
        ),
    ]
    required_elements: Annotated[
        int, msgspec.Meta(ge=0, description="Objects that a text must have, for `json-within`.")
    ] = 0


def file_type(limit: int) -> Kind[FileTypeParams]:
    """The detector.

    Args:
        limit: Code points of a growing text that it may hold back.
    """

    def build(params: FileTypeParams) -> WholeTextDetector:
        checks = [
            (_named(text), _check(text, params.required_elements, f"file_type[{index}]"))
            for index, text in enumerate(params.file_type)
        ]

        def judge(text: str) -> list[Detection]:
            found = []
            for name, check in checks:
                reason = check(text)
                if reason:
                    extra = msgspec.json.encode({"metadata": {"reason": reason}})
                    found.append(Detection(_TYPE, f"invalid_{name}", text, 0, len(text), extra=extra))
            return found

        return WholeTextDetector(judge, limit, _INLINE)

    description = "Finds texts that are not the JSON, YAML or XML that they should be."
    return Kind("file_type", description, FileTypeParams, build, streaming=False)


def _named(text: str) -> str:
    name, schema, _ = text.partition(_SCHEMA)
    return f"{name}_schema" if schema else name.replace("-", "_")


def _check(text: str, required: int, path: str) -> Check:
    plain: Mapping[str, Check] = {
        "json": lambda text: _reason(text, json.loads),
        "yaml": lambda text: _reason(text, _yaml),
        "xml": _xml,
        "json-within": lambda text: _within(text, required),
    }
    if text in plain:
        return plain[text]
    name, _, schema = text.partition(_SCHEMA)
    if name not in ("json", "yaml") or not schema:
        raise BadParam(path, f"not one of {', '.join(plain)}, json{_SCHEMA}…, yaml{_SCHEMA}…")
    validator = _validator(schema, path)
    parse = json.loads if name == "json" else _yaml

    def check(text: str) -> str:
        return _reason(text, parse, validator)

    return check


def _validator(schema: str, path: str) -> Any:
    def refuse(address: str) -> Any:
        raise ValueError(f"{address} is not part of the schema")

    try:
        return jsonschema_rs.validator_for(
            json.loads(schema), retriever=refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise BadParam(path, f"the schema cannot be used: {_line(error)}") from error


def _reason(text: str, parse: Callable[[str], Any], validator: Any = None) -> str:
    try:
        value = parse(text)
        if validator is not None:
            validator.validate(value)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return _line(error)
    return ""


def _yaml(text: str) -> Any:
    aliases = sum(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.CSafeLoader))
    if aliases > _MOST_ALIASES:
        raise ValueError(f"more than {_MOST_ALIASES} aliases")
    value = yaml.load(text, yaml.CSafeLoader)  # the safe loader
    if not isinstance(value, dict | list):
        # Any sentence is a YAML scalar.
        raise ValueError("neither a mapping nor a sequence")  # noqa: TRY004  # the text's error, as a parser's
    return value


def _xml(text: str) -> str:
    try:
        ElementTree.fromstring(text, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError) as error:
        return _line(error)
    return ""


def _within(text: str, required: int) -> str:
    decoder = json.JSONDecoder()
    elements, at = 0, 0
    while (match := _OBJECT.search(text, at)) is not None:
        try:
            _, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError) as error:
            return _line(error)
        elements += 1
    return "" if elements >= required else f"{elements} of {required} objects"


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]

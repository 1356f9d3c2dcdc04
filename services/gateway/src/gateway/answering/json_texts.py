"""Collect the texts in JSON members for the detectors, and replace the spans that the detectors find."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.answering.word_edges import separator
from gateway.domain import Action, Finding

MAX_LENGTH = 256 * 1024
"""The maximum number of characters of all members' texts together; see `Unjudgeable`."""

MAX_DEPTH = 64
"""The maximum number of levels of lists and objects; see `Unjudgeable`."""

Span = tuple[int, int, str]
"""A start, an end and the replacement of the text between them."""

# fmt: off
_NAMES = frozenset((
    "additionalProperties", "annotations", "arguments", "citations", "code", "content",
    "content_filter_results", "context", "created", "custom", "custom_blocklists", "description", "detail",
    "details", "detected", "document", "documents", "end_index", "enum", "error", "file_citation", "filtered",
    "function", "function_call", "functions", "hate", "id", "index", "indirect_attack", "input", "items",
    "jailbreak", "json_schema", "message", "model", "name", "object", "param", "parameters", "prediction",
    "profanity", "prompt_filter_results", "prompt_index", "properties", "protected_material_code",
    "protected_material_text", "reasoning", "reasoning_content", "refusal", "required", "response_format",
    "role", "schema", "search_results", "self_harm", "severity", "sexual", "start_index", "stop_reason",
    "strict", "text", "title", "tool_calls", "tool_choice", "tools", "type", "url", "url_citation", "usage",
    "violence",
))
_KIND_OF = ("type", "role", "severity")
_KINDS = frozenset((
    "array", "assistant", "boolean", "content", "custom", "function", "high", "integer", "json_object",
    "json_schema", "low", "medium", "null", "number", "object", "output_text", "refusal", "safe", "string",
    "text", "url_citation",
))
# fmt: on
"""Names in OpenAI's protocol, and values of the members in `_KIND_OF`. Detectors do not judge them."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')
_encode = msgspec.json.encode
_Visit = Callable[[str], str | None]


class Unjudgeable(Exception):
    """The members are too long or nested too deeply for the detectors."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of leaves in a judged text.

    Attributes:
        begin: The offset of the first character of the leaves.
        end: The offset after their last character.
        leaves: The numbers of the leaves. A text with embedded JSON has several leaves, which are also judged
            separately.
        escaped: Whether the judged text has JSON escapes. Its offsets then differ from the offsets in the leaf.
    """

    begin: int
    end: int
    leaves: range
    escaped: bool = False


class JsonTexts:
    """The strings, names and numbers (leaves) of JSON members, including the leaves of JSON inside a string.

    Detectors judge the leaves in three forms, because clients may read each form: all leaves on separate lines, the
    joined leaves of each member, and each embedded JSON text unchanged.

    >>> found = JsonTexts({"tool": {"arguments": '{"mail": "ann@kelp.org"}'}})
    >>> found.texts[0].splitlines()
    ['tool', 'mail', 'ann@kelp.org']

    Args:
        members: The members.

    Raises:
        Unjudgeable: The members are too long or nested too deeply.

    Attributes:
        texts: The texts for the detectors.
        changed: Whether the findings change the members.
    """

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members
        self._leaves: list[str] = []
        self._spans: dict[int, list[Span]] = {}
        self._dropped: set[int] = set()
        self._embedded: list[tuple[str, int]] = []
        ends: list[tuple[int, int]] = []
        for name, value in members.items():
            first = len(self._leaves)
            _walk({name: value}, self._collect, self._collect_embedded)
            ends.append((first + (name not in _NAMES), len(self._leaves)))
        if sum(map(len, self._leaves)) > MAX_LENGTH:
            raise Unjudgeable
        self._judged = [self._joined(range(len(self._leaves)), "\n")]
        self._judged += [self._joined(range(first, end), "") for first, end in ends if end - first > 1]
        self._judged += [self._embedded_text(at) for at in range(len(self._embedded))]
        self.texts = tuple(text for text, _ in self._judged)

    @property
    def changed(self) -> bool:
        """Return whether the findings change the members."""
        return bool(self._spans or self._dropped)

    def take(self, at: int, findings: Iterable[Finding]) -> None:
        """Record the findings in the text with this number."""
        places = self._judged[at][1]
        for finding in findings:
            if finding.action is not Action.REDACT or finding.start is None or finding.end is None:
                continue
            overlapping = [place for place in places if place.begin < finding.end and place.end > finding.start]
            if not overlapping and at >= len(self._judged) - len(self._embedded):
                self._dropped.add(at - len(self._judged) + len(self._embedded))
            for place in overlapping:
                begin, end = max(finding.start, place.begin), min(finding.end, place.end)
                if len(overlapping) == 1 and len(place.leaves) > 1 and (begin, end) == (finding.start, finding.end):
                    continue  # the finding is also in the separate texts of these leaves
                for leaf in place.leaves:
                    span = (begin - place.begin, end - place.begin, finding.replacement)
                    if place.escaped or len(place.leaves) > 1:
                        span = (0, len(self._leaves[leaf]), finding.replacement)
                    self._spans.setdefault(leaf, []).append(span)

    def replaced(self) -> dict[str, Any]:
        """Return the members after redaction. Embedded JSON stays valid JSON."""
        leaves = iter(range(len(self._leaves)))
        embedded = iter(range(len(self._embedded)))

        def leaf(text: str) -> str | None:
            spans = self._spans.get(next(leaves))
            return None if spans is None else replaced(text, spans)

        def dropped(_text: str) -> str | None:
            return "{}" if next(embedded) in self._dropped else None

        whole: dict[str, Any] = {}
        for name, value in self._members.items():
            whole |= _walk({name: value}, leaf, dropped)
        return whole

    def _collect(self, text: str) -> None:
        self._leaves.append(text)

    def _collect_embedded(self, text: str) -> None:
        self._embedded.append((text, len(self._leaves)))

    def _joined(self, leaves: range, between: str) -> tuple[str, list[_Place]]:
        places, at = [], 0
        for leaf in leaves:
            end = at + len(self._leaves[leaf])
            places.append(_Place(at, end, range(leaf, leaf + 1)))
            at = end + len(between)
        return between.join(self._leaves[leaf] for leaf in leaves), places

    def _embedded_text(self, at: int) -> tuple[str, list[_Place]]:
        raw, first = self._embedded[at]
        sizes = list(_sizes(msgspec.json.decode(raw)))
        tokens = list(_TOKEN.finditer(raw))
        if len(tokens) != len(sizes):
            return raw, []  # after a duplicate name, any finding replaces the whole embedded text
        places = []
        for size, token in zip(sizes, tokens, strict=True):
            quote = token[0].startswith('"')
            leaves = range(first, first + size)
            places.append(_Place(token.start() + quote, token.end() - quote, leaves, escaped="\\" in token[0]))
            first += size
        return raw, places


def replaced(text: str, spans: Iterable[Span]) -> str:
    """Return the text with spans replaced. Overlapping spans get the replacement of the first span.

    >>> replaced("call 555-0100 now", [(5, 13, "[PHONE]"), (9, 13, "#")])
    'call [PHONE] now'
    >>> replaced("tern4111 1111tern", [(0, 4, "#"), (13, 17, "#")])
    '#_4111 1111_#'
    """
    parts: list[str] = []
    done, edge = 0, ""
    for begin, end, replacement in sorted(spans, key=lambda span: span[:2]):
        if begin >= done:
            kept = text[done:begin]
            parts += [separator(kept[:1], text[done - 1 : done], edge), kept]
            parts += [separator(kept[-1:], text[begin : begin + 1], replacement[:1]), replacement]
            edge = replacement[-1:]
        done = max(done, end)
    rest = text[done:]
    return "".join([*parts, separator(rest[:1], text[done - 1 : done], edge), rest])


def repeats_names(raw_json: bytes | str) -> bool:
    """Return whether an object in a JSON text has a duplicate name, or the text is invalid.

    A decoder keeps only one value of a duplicate name.

    >>> repeats_names('{"a": 1, "b": {"a": 1}}'), repeats_names('{"a": 1, "a": 2}')
    (False, True)
    """
    repeated = False

    def members(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({name for name, _ in pairs}) < len(pairs)

    try:
        json.loads(raw_json, object_pairs_hook=members)
    except (ValueError, RecursionError):
        return True
    return repeated


def _walk(value: Any, visit: _Visit, embedded: _Visit, depth: int = 0, *, embeds: bool = False) -> Any:
    """Visit all leaves in order and return the value with the visitors' replacements for leaves.

    Args:
        value: The value.
        visit: The visitor of strings, names and numbers.
        embedded: The visitor of strings that contain JSON. It runs before the visits of the contained leaves.
        depth: The number of levels above the value.
        embeds: Whether the value is in a string with JSON, where no name belongs to the protocol.

    Raises:
        Unjudgeable: The value is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise Unjudgeable
    if isinstance(value, dict):
        walked = {}
        for name, each in value.items():
            replacement = visit(name) if embeds or name not in _NAMES else None
            kind = not embeds and name in _KIND_OF and isinstance(each, str) and each in _KINDS
            inner = each if kind else _walk(each, visit, embedded, depth + 1, embeds=embeds)
            walked[name if replacement is None else replacement] = inner
        return walked
    if isinstance(value, list):
        return [_walk(element, visit, embedded, depth + 1, embeds=embeds) for element in value]
    if isinstance(value, str):
        inner = _json_inside(value)
        if inner is None:
            replacement = visit(value)
            return value if replacement is None else replacement
        instead = embedded(value)
        walked = _walk(inner, visit, embedded, depth + 1, embeds=True)
        if instead is not None:
            return instead
        return value if walked == inner else _encode(walked).decode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        replacement = visit(_encode(value).decode())
        return value if replacement is None else replacement
    return value


def _sizes(value: Any) -> Iterator[int]:
    """Yield the number of leaves of each string, name and number in an embedded value."""
    if isinstance(value, dict):
        for member in value.values():
            yield 1
            yield from _sizes(member)
    elif isinstance(value, list):
        for element in value:
            yield from _sizes(element)
    elif isinstance(value, str) and (inner := _json_inside(value)) is not None:
        yield sum(_sizes(inner))
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield 1


def _json_inside(text: str) -> Any:
    """Return the list or the object that a text contains as JSON, or None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise Unjudgeable from None
    except ValueError:
        return None

"""The guardrails orchestrator's routes that only detect: texts in, what detectors find out, no model asked.

Source: the guardrails orchestrator's API, ``/api/v2/text/detection/…``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.dialects.orchestrator import fields
from gateway.dialects.orchestrator.detections import moved, plain_results
from gateway.dialects.orchestrator.fields import Raw, refused
from gateway.domain import DetectionContext, Detections, Detector, DetectorKind, Direction, Finding

_CONTEXT_TYPES = ("docs", "url")


@dataclass(frozen=True, slots=True)
class Question:
    """What detectors are to look at.

    Attributes:
        detectors: Which.
        kind: What they must be for.
        direction: Where the text stands.
        text: The text; empty where a whole conversation is judged.
        context: What it stands in.
    """

    detectors: tuple[Detector, ...]
    kind: DetectorKind
    direction: Direction
    text: str
    context: DetectionContext


def content(raw: Raw, headers: Mapping[str, str]) -> Question:
    """``content, detectors``."""
    fields.only(raw, ("content", "detectors"))
    chosen = fields.detectors(raw)
    text = fields.text(raw, "content")
    return Question(chosen, DetectorKind.CONTENTS, Direction.INPUT, text, DetectionContext(headers=headers))


def chat(raw: Raw, headers: Mapping[str, str]) -> Question:
    """``messages, tools?, detectors``."""
    fields.only(raw, ("detectors", "messages"), ("tools",))
    chosen = fields.detectors(raw)
    for at, message in enumerate(fields.objects(raw, "messages")):
        _check_message(message, f"messages[{at}].content")
    tools = b""
    if "tools" in raw and bytes(raw["tools"]) != b"null":
        fields.objects(raw, "tools", empty=True)
        tools = bytes(raw["tools"])
    around = DetectionContext(messages_json=bytes(raw["messages"]), tools_json=tools, headers=headers)
    return Question(chosen, DetectorKind.CHAT, Direction.INPUT, "", around)


def context(raw: Raw, headers: Mapping[str, str]) -> Question:
    """``content, context_type, context, detectors``."""
    fields.only(raw, ("detectors", "content", "context_type", "context"))
    chosen = fields.detectors(raw)
    text = fields.text(raw, "content")
    kind = fields.choice(raw, "context_type", _CONTEXT_TYPES)
    if not kind:
        raise refused("`context_type` must be one of `docs`, `url`", "context_type")
    around = DetectionContext(
        passages=fields.texts(raw, "context"), passages_are_urls=kind == "url", headers=headers
    )
    return Question(chosen, DetectorKind.CONTEXT_DOC, Direction.OUTPUT, text, around)


def generated(raw: Raw, headers: Mapping[str, str]) -> Question:
    """``prompt, generated_text, detectors``."""
    fields.only(raw, ("prompt", "generated_text", "detectors"))
    chosen = fields.detectors(raw)
    prompt = fields.text(raw, "prompt")
    text = fields.text(raw, "generated_text")
    around = DetectionContext(prompt=prompt, headers=headers)
    return Question(chosen, DetectorKind.GENERATION, Direction.OUTPUT, text, around)


Read = Callable[[Raw, Mapping[str, str]], Question]
"""Reads the members of a body, with the headers that detectors may get."""


def _check_message(message: dict[str, Any], field: str) -> None:
    content = message.get("content")
    if not (content or message.get("tool_calls")):
        raise refused("Message content cannot be empty", field)
    if isinstance(content, list) and not all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        raise refused("Only content of type text is allowed", field)


def answer(findings: Sequence[Finding]) -> bytes:
    """``{"detections": […]}``."""
    return msgspec.json.encode({"detections": _results(findings)})


def first_line(line: bytes) -> tuple[tuple[Detector, ...], str]:
    """The detectors and the first content of a stream.

    Raises:
        NotJson, Unprocessable: The line is wrong.
    """
    raw = fields.members(line)
    fields.only(raw, ("content",), ("detectors",))
    if "detectors" not in raw or bytes(raw["detectors"]) == b"null":
        raise refused("`detectors` is required", "detectors")
    return fields.detectors(raw), fields.text(raw, "content", empty=True)


def next_line(line: bytes) -> str:
    """Further content of a stream.

    Raises:
        NotJson, Unprocessable: The line is wrong.
    """
    raw = fields.members(line)
    fields.only(raw, ("content",), ("detectors",))
    if "detectors" in raw and bytes(raw["detectors"]) not in (b"null", b"{}"):
        raise refused("`detectors` stand in the first line only", "detectors")
    return fields.text(raw, "content", empty=True)


def chunk_line(findings: Sequence[Finding], start: int, end: int, *, relative: bool) -> bytes:
    """What was found in a chunk, and where the chunk stands in the whole content.

    Args:
        findings: With places in the whole content.
        start: Where the chunk begins.
        end: Where it ends.
        relative: Tell places in the chunk.
    """
    results = _results(findings)
    if relative:
        results = moved(results, -start)
    said: dict[str, Any] = {"detections": results, "processed_index": end, "start_index": start}
    return msgspec.json.encode(said) + b"\n"


def _results(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    # As of the input: what the client sent, it may be told.
    return plain_results(Detections(Direction.INPUT, 0, tuple(findings)))

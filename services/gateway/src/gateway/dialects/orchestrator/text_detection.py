"""The guardrails orchestrator's routes that only detect: texts in, findings out, no model.

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
    """The input of detectors.

    Attributes:
        detectors: The detectors.
        kind: The required kind of the detectors.
        direction: The direction of the text.
        text: The text; empty if a whole conversation is judged.
        context: The context of the text.
    """

    detectors: tuple[Detector, ...]
    kind: DetectorKind
    direction: Direction
    text: str
    context: DetectionContext


def content(raw: Raw, headers: Mapping[str, str]) -> Question:
    """Parse ``content, detectors``."""
    fields.only(raw, ("content", "detectors"))
    chosen = fields.detectors(raw)
    text = fields.text(raw, "content")
    return Question(chosen, DetectorKind.CONTENTS, Direction.INPUT, text, DetectionContext(headers=headers))


def chat(raw: Raw, headers: Mapping[str, str]) -> Question:
    """Parse ``messages, tools?, detectors``."""
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
    """Parse ``content, context_type, context, detectors``."""
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
    """Parse ``prompt, generated_text, detectors``."""
    fields.only(raw, ("prompt", "generated_text", "detectors"))
    chosen = fields.detectors(raw)
    prompt = fields.text(raw, "prompt")
    text = fields.text(raw, "generated_text")
    around = DetectionContext(prompt=prompt, headers=headers)
    return Question(chosen, DetectorKind.GENERATION, Direction.OUTPUT, text, around)


Read = Callable[[Raw, Mapping[str, str]], Question]
"""Parses the members of a body, with the headers that detectors may get."""


def _check_message(message: dict[str, Any], field: str) -> None:
    content = message.get("content")
    if not (content or message.get("tool_calls")):
        raise refused("Message content cannot be empty", field)
    if isinstance(content, list) and not all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        raise refused("Only content of type text is allowed", field)


def answer(findings: Sequence[Finding]) -> bytes:
    """Return ``{"detections": […]}``."""
    return msgspec.json.encode({"detections": _results(findings)})


def first_line(line: bytes) -> tuple[tuple[Detector, ...], str]:
    """Parse the detectors and the first content of a stream.

    Raises:
        NotJson, Unprocessable: The line is invalid.
    """
    raw = fields.members(line)
    fields.only(raw, ("content",), ("detectors",))
    if "detectors" not in raw or bytes(raw["detectors"]) == b"null":
        raise refused("`detectors` is required", "detectors")
    return fields.detectors(raw), fields.text(raw, "content", empty=True)


def next_line(line: bytes) -> str:
    """Parse further content of a stream.

    Raises:
        NotJson, Unprocessable: The line is invalid.
    """
    raw = fields.members(line)
    fields.only(raw, ("content",), ("detectors",))
    if "detectors" in raw and bytes(raw["detectors"]) not in (b"null", b"{}"):
        raise refused("`detectors` are allowed only in the first line", "detectors")
    return fields.text(raw, "content", empty=True)


def chunk_line(findings: Sequence[Finding], start: int, end: int, *, relative: bool) -> bytes:
    """Return the findings in a chunk, and the position of the chunk in the whole content.

    Args:
        findings: With positions in the whole content.
        start: The start of the chunk.
        end: The end of the chunk.
        relative: Return positions in the chunk.
    """
    results = _results(findings)
    if relative:
        results = moved(results, -start)
    answer_line: dict[str, Any] = {"detections": results, "processed_index": end, "start_index": start}
    return msgspec.json.encode(answer_line) + b"\n"


def _results(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    # As for input: the client may get its own text back.
    return plain_results(Detections(Direction.INPUT, 0, tuple(findings)))

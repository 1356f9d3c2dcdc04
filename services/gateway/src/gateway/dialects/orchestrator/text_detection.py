"""Parses the requests and renders the answers of the guardrails orchestrator's detection-only routes.

Source: the guardrails orchestrator's API, ``/api/v2/text/detection/…``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.dialects.orchestrator import fields
from gateway.dialects.orchestrator.detections import plain_results, shifted
from gateway.dialects.orchestrator.fields import Raw, invalid
from gateway.domain import DetectionContext, Detections, Detector, DetectorKind, Direction, Finding

_CONTEXT_TYPES = ("docs", "url")


@dataclass(frozen=True, slots=True)
class DetectionRequest:
    """The input of the detectors of a request.

    Attributes:
        detectors: The detectors.
        kind: The kind that the detectors must have.
        direction: The direction of the text.
        text: The text, or empty if the detectors judge a whole conversation.
        context: The context of the text.
    """

    detectors: tuple[Detector, ...]
    kind: DetectorKind
    direction: Direction
    text: str
    context: DetectionContext


def content(raw: Raw, headers: Mapping[str, str]) -> DetectionRequest:
    """Parse a request with ``content`` and ``detectors``.

    Raises:
        Unprocessable: A member is missing, unknown or invalid.
    """
    fields.check_members(raw, ("content", "detectors"))
    detectors = fields.detectors(raw)
    text = fields.text(raw, "content")
    return DetectionRequest(
        detectors, DetectorKind.CONTENTS, Direction.INPUT, text, DetectionContext(headers=headers)
    )


def chat(raw: Raw, headers: Mapping[str, str]) -> DetectionRequest:
    """Parse a request with ``messages``, ``detectors`` and optional ``tools``.

    Raises:
        Unprocessable: A member is missing, unknown or invalid.
    """
    fields.check_members(raw, ("detectors", "messages"), ("tools",))
    detectors = fields.detectors(raw)
    for at, message in enumerate(fields.objects(raw, "messages")):
        _check_message(message, f"messages[{at}].content")
    tools = b""
    if "tools" in raw and bytes(raw["tools"]) != b"null":
        fields.objects(raw, "tools", allow_empty=True)
        tools = bytes(raw["tools"])
    detection_context = DetectionContext(messages_json=bytes(raw["messages"]), tools_json=tools, headers=headers)
    return DetectionRequest(detectors, DetectorKind.CHAT, Direction.INPUT, "", detection_context)


def context(raw: Raw, headers: Mapping[str, str]) -> DetectionRequest:
    """Parse a request with ``content``, ``context_type``, ``context`` and ``detectors``.

    Raises:
        Unprocessable: A member is missing, unknown or invalid.
    """
    fields.check_members(raw, ("detectors", "content", "context_type", "context"))
    detectors = fields.detectors(raw)
    text = fields.text(raw, "content")
    kind = fields.choice(raw, "context_type", _CONTEXT_TYPES)
    if not kind:
        raise invalid("`context_type` must be one of `docs`, `url`", "context_type")
    detection_context = DetectionContext(
        passages=fields.texts(raw, "context"), passages_are_urls=kind == "url", headers=headers
    )
    return DetectionRequest(detectors, DetectorKind.CONTEXT_DOC, Direction.OUTPUT, text, detection_context)


def generated(raw: Raw, headers: Mapping[str, str]) -> DetectionRequest:
    """Parse a request with ``prompt``, ``generated_text`` and ``detectors``.

    Raises:
        Unprocessable: A member is missing, unknown or invalid.
    """
    fields.check_members(raw, ("prompt", "generated_text", "detectors"))
    detectors = fields.detectors(raw)
    prompt = fields.text(raw, "prompt")
    text = fields.text(raw, "generated_text")
    detection_context = DetectionContext(prompt=prompt, headers=headers)
    return DetectionRequest(detectors, DetectorKind.GENERATION, Direction.OUTPUT, text, detection_context)


Parser = Callable[[Raw, Mapping[str, str]], DetectionRequest]
"""Parses the members of a body; raises `Unprocessable`. The headers are those that detectors may receive."""


def _check_message(message: dict[str, Any], field: str) -> None:
    content = message.get("content")
    if not (content or message.get("tool_calls")):
        raise invalid("Message content cannot be empty", field)
    if isinstance(content, list) and not all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        raise invalid("Only content of type text is allowed", field)


def answer(findings: Sequence[Finding]) -> bytes:
    """Return the body of an answer: ``{"detections": […]}``."""
    return msgspec.json.encode({"detections": _results(findings)})


def first_line(line: bytes) -> tuple[tuple[Detector, ...], str]:
    """Parse the first line of a stream: the detectors and the first content.

    Raises:
        NotJson, Unprocessable: The line is invalid.
    """
    raw = fields.members(line)
    fields.check_members(raw, ("content",), ("detectors",))
    if "detectors" not in raw or bytes(raw["detectors"]) == b"null":
        raise invalid("`detectors` is required", "detectors")
    return fields.detectors(raw), fields.text(raw, "content", allow_empty=True)


def next_line(line: bytes) -> str:
    """Parse a later line of a stream: further content.

    Raises:
        NotJson, Unprocessable: The line is invalid.
    """
    raw = fields.members(line)
    fields.check_members(raw, ("content",), ("detectors",))
    if "detectors" in raw and bytes(raw["detectors"]) not in (b"null", b"{}"):
        raise invalid("`detectors` are allowed only in the first line", "detectors")
    return fields.text(raw, "content", allow_empty=True)


def chunk_line(findings: Sequence[Finding], start: int, end: int, *, relative: bool) -> bytes:
    """Return the findings in a chunk, and the position of the chunk in the whole content.

    Args:
        findings: The findings, with positions in the whole content.
        start: The position of the chunk's first code point in the whole content.
        end: The position after the chunk's last code point.
        relative: Whether the client receives positions in the chunk instead of positions in the content.
    """
    results = _results(findings)
    if relative:
        results = shifted(results, -start)
    answer_line: dict[str, Any] = {"detections": results, "processed_index": end, "start_index": start}
    return msgspec.json.encode(answer_line) + b"\n"


def _results(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    # With the direction input, the results contain the judged text. The client sent it and may receive it.
    return plain_results(Detections(Direction.INPUT, 0, tuple(findings)))

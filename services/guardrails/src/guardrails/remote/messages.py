"""Messages of the detector API, ``/api/v1/text/*``. Spans count Unicode code points of the text in the request."""

from typing import Any

import msgspec

CONTENTS = "/api/v1/text/contents"
CHAT = "/api/v1/text/chat"
CONTEXT_DOC = "/api/v1/text/context/doc"
GENERATION = "/api/v1/text/generation"

DETECTOR_ID = "detector-id"
"""The header that names the detector."""


class ContentsRequest(msgspec.Struct):
    """The request of `CONTENTS`; the response is one list of results for each content."""

    contents: list[str]
    detector_params: dict[str, Any] = {}


class ChatRequest(msgspec.Struct):
    """The request of `CHAT`; the response is one list of results, without spans."""

    messages: msgspec.Raw
    detector_params: dict[str, Any] = {}
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ContextDocRequest(msgspec.Struct):
    """The request of `CONTEXT_DOC`; the response is one list of results.

    ``context_type`` is ``docs`` if ``context`` has the texts of documents, and ``url`` if it has their URLs.
    """

    content: str
    context_type: str
    context: list[str]
    detector_params: dict[str, Any] = {}


class GenerationRequest(msgspec.Struct):
    """The request of `GENERATION`; the response is one list of results."""

    prompt: str
    generated_text: str
    detector_params: dict[str, Any] = {}


class Result(msgspec.Struct, omit_defaults=True):
    """A detection."""

    detection_type: str
    detection: str
    score: float
    start: int | None = None
    end: int | None = None
    text: str | None = None
    evidence: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Refusal(msgspec.Struct):
    """The body of an error response."""

    code: int
    message: str

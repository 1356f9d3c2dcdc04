"""Text completions with detections: OpenAI's legacy completion request with one text prompt.

Source: the guardrails orchestrator's API, ``/api/v2/text/completions-detection``. The answers have the
format of ADR 005.
"""

from dataclasses import replace

from servicekit.errors import CausewayError

from gateway.dialects import json_fields
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.orchestrator import errors, fields
from gateway.dialects.orchestrator.chat import DETECTION_OPTIONS, exchange, media, requested_detectors
from gateway.dialects.orchestrator.choices import TextFormat
from gateway.domain import DetectionOptions, DetectorKind, OriginalRequest, PromptStyle, Turn
from gateway.frontends.profiles import GuardrailsWire

_GATEWAY_MEMBERS = (*DETECTION_OPTIONS, "detectors", "model", "prompt", "stream", "stream_options")
_OUTPUT_KINDS = frozenset((DetectorKind.CONTENTS, DetectorKind.GENERATION))


class OrchestratorCompletions:
    """`Dialect` of ``POST /api/v2/text/completions-detection``.

    Args:
        wire: The wire format of the API.
    """

    name = "orchestrator-completions"

    def __init__(self, wire: GuardrailsWire) -> None:
        self.media = media(wire)
        self._wire = wire
        self._format = TextFormat()

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        raw = fields.members(request.body)
        model = fields.text(raw, "model")
        request.frontend.check_unjudged(name for name, value in raw.items() if bytes(value) != b"null")
        turn = text_turn(
            request,
            model,
            fields.text(raw, "prompt"),
            json_fields.without(raw, _GATEWAY_MEMBERS),
            in_one_piece=not json_fields.pick(raw, ("stream",)).flag("stream"),
        )
        requested = requested_detectors(raw)
        turn = replace(turn, detectors=request.frontend.detectors_for(requested))
        if self._wire is GuardrailsWire.ADR:
            fields.require_detectors(turn.detectors)
        kinds = (
            *fields.kinds(fields.CONTENTS, (*requested.input, *requested.context)),
            *fields.kinds(_OUTPUT_KINDS, requested.output),
        )
        turn = replace(turn, detection=DetectionOptions(kinds))
        return exchange(turn, raw, self._format, self._wire)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return errors.body(error, self._wire, request_name=self._format.request_name)


def text_turn(request: ChatRequest, model: str, prompt: str, parameters_json: bytes, *, in_one_piece: bool) -> Turn:
    """Return the turn for a prompt that the model continues.

    Args:
        request: The request.
        model: The model.
        prompt: The prompt.
        parameters_json: The parameters for the model server.
        in_one_piece: Whether the model server sends the answer in one piece.
    """
    return Turn(
        principal=request.principal,
        question=prompt,
        model=request.frontend.model_for(model, "model"),
        only_default_model=request.frontend.only_default_model,
        style=PromptStyle.PLAIN_TEXT,
        parameters_json=parameters_json,
        blocked_message=request.frontend.blocked_message,
        headers=request.headers,
        original=OriginalRequest(in_one_piece=in_one_piece),
    )

"""Chat completions with detections: an OpenAI request with a ``detectors`` block.

Source: ADR 005 of the guardrails orchestrator, or its reference implementation if the profile selects it. A
request may have all members that `openai.chat` reads, and also ``chunking`` and ``input_scope``.
"""

from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects import detectors_block, json_fields
from gateway.dialects.exchange import ChatRequest, Exchange, Media
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.orchestrator import errors, fields
from gateway.dialects.orchestrator.choices import ChatFormat, CompletionFormat
from gateway.dialects.orchestrator.fields import Raw, invalid
from gateway.dialects.orchestrator.render import OrchestratorExchange
from gateway.domain import Chunking, DetectionOptions, DetectorKind, Detectors, InputScope, Turn
from gateway.frontends.profiles import GuardrailsWire

DETECTION_OPTIONS = ("chunking", "input_scope")
"""The members that only requests of the orchestrator's API have. A model server never receives them."""

_CHUNKINGS = (Chunking.SENTENCE.value, Chunking.MINIMAL.value)
_SCOPES = tuple(scope.value for scope in InputScope)

_MESSAGE_KINDS = frozenset((DetectorKind.CONTENTS, DetectorKind.CHAT))
_PASSAGE_KINDS = _MESSAGE_KINDS | {DetectorKind.CONTEXT_DOC}
_LAST_ROLES = ("user", "assistant", "system")


def media(wire: GuardrailsWire) -> Media:
    """Return the content types and the conventions of the orchestrator's chat routes."""
    return Media(
        unary=b"application/json",
        stream=b"text/event-stream; charset=utf-8",
        heartbeat=b": \n\n",
        requires_json_type=True,
        status=lambda error: errors.status(error, wire),
        # The reference implementation sends status 200 before it looks up the detectors.
        errors_in_stream=wire is GuardrailsWire.ORCHESTRATOR,
    )


class OrchestratorChat:
    """`Dialect` of ``POST /api/v2/chat/completions-detection``.

    Args:
        openai: Parses OpenAI's members of a request.
        wire: The wire format of the API.
    """

    name = "orchestrator-chat"

    def __init__(self, openai: OpenAiChat, wire: GuardrailsWire) -> None:
        self.media = media(wire)
        self._openai = openai
        self._wire = wire
        self._format = ChatFormat()

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        raw = fields.members(request.body)
        model = fields.text(raw, "model")
        request = replace(request, frontend=request.frontend.with_assistant(model, request.principal))
        messages = fields.objects(raw, "messages")
        requested = requested_detectors(raw)
        self._check_detectors(requested, request.frontend.detectors_for(requested), messages[-1])
        body = (
            request.body
            if raw.keys().isdisjoint(DETECTION_OPTIONS)
            else json_fields.without(raw, DETECTION_OPTIONS)
        )
        turn = self._openai.parse(replace(request, body=body)).turn
        input_kinds = _MESSAGE_KINDS if self._wire is GuardrailsWire.ADR else fields.CONTENTS
        output_kinds = _PASSAGE_KINDS if turn.retrieval.indexes else _MESSAGE_KINDS
        kinds = (
            *fields.kinds(input_kinds, requested.input),
            *fields.kinds(fields.CONTENTS, requested.context),
            *fields.kinds(output_kinds, requested.output),
        )
        turn = replace(turn, detection=DetectionOptions(kinds))
        return exchange(turn, raw, self._format, self._wire)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return errors.body(error, self._wire, request_name=self._format.request_name)

    def _check_detectors(
        self, requested: Detectors, all_detectors: Detectors, last_message: dict[str, Any]
    ) -> None:
        """Check that detectors apply to the request, and that its input detectors can judge the last message.

        Only ADR 005 requires detectors. Those of the profile suffice.

        Args:
            requested: The detectors of the request.
            all_detectors: The detectors of the request and of the profile.
            last_message: The last message.

        Raises:
            Unprocessable: Required detectors are missing, or the input detectors cannot judge the last message.
        """
        if self._wire is GuardrailsWire.ADR:
            fields.require_detectors(all_detectors)
        if not requested.input:
            return
        if self._wire is GuardrailsWire.ORCHESTRATOR:
            if isinstance(last_message.get("content"), list):
                raise invalid("Detection on array is not supported", "messages")
            if last_message.get("role") not in _LAST_ROLES:
                raise invalid("Last message role must be user, assistant, or system", "messages")
        if not last_message.get("content"):
            raise invalid(
                "if input detectors are provided, `content` must not be empty on last message", "messages"
            )


def requested_detectors(raw: Raw) -> Detectors:
    """Return the detectors of a request by direction.

    Raises:
        InvalidRequest: A direction or a parameter is invalid.
    """
    return detectors_block.parse(json_fields.pick(raw, ("detectors",)).object("detectors"))


def exchange(turn: Turn, raw: Raw, completion_format: CompletionFormat, wire: GuardrailsWire) -> Exchange:
    """Return the exchange of a turn, with the options of the orchestrator's routes.

    Args:
        turn: The turn.
        raw: The members of the request.
        completion_format: The format of the completion.
        wire: The wire format of the API.

    Raises:
        InvalidRequest: ``stream`` or ``stream_options`` is invalid.
        Unprocessable: ``chunking`` or ``input_scope`` is invalid.
    """
    options = json_fields.pick(raw, ("stream", "stream_options"))
    usage = options.object("stream_options")
    return OrchestratorExchange(
        _with_detection(turn, raw, wire),
        completion_format,
        wire,
        streaming=options.flag("stream"),
        include_usage=usage.flag("include_usage"),
        continuous_usage=usage.flag("continuous_usage_stats"),
    )


def _with_detection(turn: Turn, raw: Raw, wire: GuardrailsWire) -> Turn:
    is_adr = wire is GuardrailsWire.ADR
    chunking = fields.choice(raw, "chunking", _CHUNKINGS)
    scope = fields.choice(raw, "input_scope", _SCOPES)
    default = Chunking.SENTENCE if is_adr else Chunking.DETECTORS
    return replace(
        turn,
        parameters_json=_with_stream_options(turn.parameters_json, raw),
        detection=replace(
            turn.detection,
            chunking=(Chunking(chunking) if chunking else default) if turn.detectors.output else None,
            input_scope=InputScope(scope) if scope else InputScope.CONVERSATION if is_adr else InputScope.LAST,
            blocked_is_empty=True,
        ),
    )


def _with_stream_options(parameters_json: bytes, raw: Raw) -> bytes:
    """Return the parameters for the model server, with the request's ``stream_options`` if they are an object."""
    options = raw.get("stream_options")
    if options is None or not bytes(options).lstrip().startswith(b"{"):
        return parameters_json
    parameters = msgspec.json.decode(parameters_json, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(parameters | {"stream_options": options})

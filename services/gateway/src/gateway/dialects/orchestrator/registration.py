"""Registers the guardrails orchestrator's routes that call a model. The profile selects the wire format."""

from collections.abc import Mapping

from servicekit.errors import CausewayError

from gateway.dialects.exchange import Dialect
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.orchestrator import errors, openapi
from gateway.dialects.orchestrator.chat import OrchestratorChat
from gateway.dialects.orchestrator.completions import OrchestratorCompletions
from gateway.dialects.orchestrator.generation_detection import OrchestratorGeneration
from gateway.dialects.registration import ChatRoute, Chooser, Registration
from gateway.frontends.profiles import Frontend, GuardrailsWire

PREFIX = "/api/v2/"
STREAM_CONTENT = f"{PREFIX}text/detection/stream-content"


def registration(openai: OpenAiChat) -> Registration:
    """Return the registration of the dialect.

    Args:
        openai: Parses OpenAI's members of a chat request.
    """
    by_path: dict[str, dict[GuardrailsWire, Dialect]] = {
        "chat/completions-detection": {wire: OrchestratorChat(openai, wire) for wire in GuardrailsWire},
        "text/completions-detection": {wire: OrchestratorCompletions(wire) for wire in GuardrailsWire},
        "text/generation-detection": {wire: OrchestratorGeneration(wire) for wire in GuardrailsWire},
    }
    described = openapi.paths()
    return Registration(
        chats=tuple(
            ChatRoute(PREFIX + path, _chooser(dialects), described[PREFIX + path])
            for path, dialects in by_path.items()
        ),
        tags={openapi.TAG: "The guardrails orchestrator's API: completions with detections, and detections only."},
        errors_below={PREFIX: error_body},
        operations={STREAM_CONTENT: described[STREAM_CONTENT]},
    )


def error_body(frontend: Frontend, _headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
    """Return an error in the orchestrator's format."""
    return errors.body(error, frontend.guardrails_wire)


def _chooser(dialects: Mapping[GuardrailsWire, Dialect]) -> Chooser:
    def choose(frontend: Frontend, _headers: Mapping[bytes, bytes], _body: bytes) -> Dialect:
        return dialects[frontend.guardrails_wire]

    return choose

"""The route that lists the detectors."""

import msgspec
from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline

from gateway.ports.answering import Guardrails
from gateway.routes.body import json_response
from gateway.routes.schemas import openapi_responses
from gateway.server.request_state import state_of

_DETECTOR = {
    "type": "object",
    "required": ["id", "kind", "streaming", "remote", "description", "params"],
    "properties": {
        "id": {"type": "string"},
        "kind": {"enum": ["text_contents", "text_chat", "text_context_doc", "text_generation"]},
        "streaming": {"type": "boolean", "description": "Whether it can judge an answer before the answer ends"},
        "remote": {"type": "boolean", "description": "Whether it calls another server"},
        "description": {"type": "string"},
        "params": {"type": "object", "description": "JSON Schema of its parameters"},
    },
}
_LIST = {
    "type": "object",
    "required": ["detectors"],
    "properties": {"detectors": {"type": "array", "items": _DETECTOR}},
}


def router(guardrails: Guardrails, *, timeout: float) -> APIRouter:
    """Return ``GET /detectors``.

    Args:
        guardrails: Lists the detectors.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["guardrails"])

    @routes.get("/detectors", summary="The detectors", responses=openapi_responses(_LIST))
    async def list_detectors(request: Request) -> Response:
        """List the detectors in the order of their ids, with their kinds and parameters."""
        known = await guardrails.detectors(state_of(request.scope).principal, Deadline.after(timeout))
        listed = [
            {
                "id": info.detector_id,
                "kind": info.kind.value,
                "streaming": info.streaming,
                "remote": info.remote,
                "description": info.description,
                "params": msgspec.Raw(info.params_schema_json or b"{}"),
            }
            for info in known
        ]
        return json_response({"detectors": listed})

    return routes

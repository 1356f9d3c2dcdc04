"""The guardrails orchestrator's routes that run detectors without a model."""

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, UnsupportedMedia

from gateway.answering.detector_kinds import supported
from gateway.dialects.orchestrator import errors, fields, text_detection
from gateway.dialects.orchestrator.openapi import CHAT, CONTENT, CONTEXT, DETECTIONS, GENERATED, REFUSALS
from gateway.ports.answering import Guardrails
from gateway.routes.body import headers_for_detectors, json_body, json_response, while_connected
from gateway.routes.schemas import openapi_body, openapi_responses
from gateway.server.request_state import state_of


def router(guardrails: Guardrails, *, timeout: float, passed_headers: frozenset[bytes]) -> APIRouter:
    """Return the routes below ``/api/v2/text/detection``, except the stream.

    Args:
        guardrails: Runs the detectors.
        timeout: The time limit of a request, in seconds.
        passed_headers: The names, in lower case, of the headers that detectors may get.
    """
    routes = APIRouter(tags=["guardrails"], prefix="/api/v2/text/detection")

    async def detection_response(request: Request, parse: text_detection.Parser) -> Response:
        try:
            raw = fields.members(await _body(request))
            detection = parse(raw, headers_for_detectors(request.scope, passed_headers))
            return await while_connected(request.receive, findings(request, detection))
        except CausewayError as error:
            refusal = errors.client_error(error, state_of(request.scope).frontend.guardrails_wire)
            raise refusal from error

    async def findings(request: Request, detection: text_detection.DetectionRequest) -> Response:
        principal, deadline = state_of(request.scope).principal, Deadline.after(timeout)
        known = {info.detector_id: info for info in await guardrails.detectors(principal, deadline)}
        for detector in detection.detectors:
            supported(known, detector.detector_id, (detection.kind,))
        [verdict], failures = await guardrails.detect(
            principal,
            detection.direction,
            detection.detectors,
            [detection.text],
            deadline,
            detection.context,
        )
        for failure in failures:
            raise errors.DetectorFailed(failure)
        return json_response(text_detection.answer(verdict.findings))

    shown = openapi_responses(DETECTIONS, {int(status): text for status, text in REFUSALS.items()})

    @routes.post("/content", summary="Findings in a text", responses=shown, openapi_extra=openapi_body(CONTENT))
    async def content(request: Request) -> Response:
        """Call detectors of the kind `text_contents`."""
        return await detection_response(request, text_detection.content)

    @routes.post("/chat", summary="Findings in a conversation", responses=shown, openapi_extra=openapi_body(CHAT))
    async def chat(request: Request) -> Response:
        """Call detectors of the kind `text_chat`."""
        return await detection_response(request, text_detection.chat)

    @routes.post(
        "/context",
        summary="Findings in a text and its sources",
        responses=shown,
        openapi_extra=openapi_body(CONTEXT),
    )
    async def context(request: Request) -> Response:
        """Call detectors of the kind `text_context_doc`."""
        return await detection_response(request, text_detection.context)

    @routes.post(
        "/generated",
        summary="Findings in a generated text",
        responses=shown,
        openapi_extra=openapi_body(GENERATED),
    )
    async def generated(request: Request) -> Response:
        """Call detectors of the kind `text_generation`."""
        return await detection_response(request, text_detection.generated)

    return routes


async def _body(request: Request) -> bytes:
    if not request.headers.get("content-type"):
        raise UnsupportedMedia("Content-Type must be application/json.", field="content-type")
    return await json_body(request)

"""The guardrails orchestrator's routes: those that ask a model are chats, the others ask the detectors alone."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, NotFound, UnsupportedMedia
from starlette.types import Scope

from gateway.detector_kinds import unsupported
from gateway.frontends import Frontend, GuardrailsWire
from gateway.identity.caller import principal_of
from gateway.openapi_orchestrator import CHAT, CONTENT, CONTEXT, FOUND, GENERATED, REFUSALS
from gateway.pipeline import Pipeline
from gateway.ports import Guardrails
from gateway.profiles import frontend_of
from gateway.protocols import orchestrator_errors as errors
from gateway.protocols import orchestrator_fields as fields
from gateway.protocols import orchestrator_text as text
from gateway.protocols.exchange import Dialect
from gateway.protocols.openai_chat import OpenAiChat
from gateway.protocols.orchestrator_chat import OrchestratorChat
from gateway.protocols.orchestrator_completions import OrchestratorCompletions
from gateway.protocols.orchestrator_generation import OrchestratorGeneration
from gateway.routes.body import json_answer, json_body, while_connected
from gateway.routes.chat import ChatEndpoint, Chooser
from gateway.routes.schemas import answers, body

PREFIX = "/api/v2/"


def chats(
    pipeline: Pipeline, openai: OpenAiChat, *, timeout: float, passed_headers: frozenset[str]
) -> dict[str, ChatEndpoint]:
    """The routes that ask a model, in the ways that the profile says.

    Args:
        pipeline: Answers.
        openai: Reads what of a chat is OpenAI's.
        timeout: Seconds a whole answer may take.
        passed_headers: Names of the requests' headers that detectors may get, in lower case.
    """
    spoken: dict[str, dict[GuardrailsWire, Dialect]] = {
        "chat/completions-detection": {wire: OrchestratorChat(openai, wire) for wire in GuardrailsWire},
        "text/completions-detection": {wire: OrchestratorCompletions(wire) for wire in GuardrailsWire},
        "text/generation-detection": {wire: OrchestratorGeneration(wire) for wire in GuardrailsWire},
    }
    return {
        PREFIX + path: ChatEndpoint(_by_wire(dialects), pipeline, timeout=timeout, passed_headers=passed_headers)
        for path, dialects in spoken.items()
    }


def _by_wire(dialects: Mapping[GuardrailsWire, Dialect]) -> Chooser:
    def choose(frontend: Frontend, _headers: Mapping[bytes, bytes], _body: bytes) -> Dialect:
        return dialects[frontend.guardrails_wire]

    return choose


def error_body(scope: Scope, error: CausewayError) -> bytes | None:
    """An error in the words of these routes; None for what is asked elsewhere."""
    if not scope["path"].startswith(PREFIX):
        return None
    return errors.body(error, frontend_of(scope).guardrails_wire)


def router(guardrails: Guardrails, *, timeout: float, passed_headers: frozenset[str]) -> APIRouter:
    """The routes that only detect and answer in one piece.

    Args:
        guardrails: Judge.
        timeout: Seconds that a request may take.
        passed_headers: As of `chats`.
    """
    routes = APIRouter(tags=["guardrails"], prefix="/api/v2/text/detection")

    async def found(request: Request, read: text.Read) -> Response:
        try:
            raw = fields.members(await _body(request))
            headers = {name: request.headers[name] for name in passed_headers if name in request.headers}
            question = read(raw, headers)
            return await while_connected(request, _judged(request, question))
        except CausewayError as error:
            refusal = errors.as_raised(error, frontend_of(request.scope).guardrails_wire)
            raise refusal from error

    async def _judged(request: Request, question: text.Question) -> Response:
        principal, deadline = principal_of(request.scope), Deadline.after(timeout)
        kinds = {info.detector_id: info.kind for info in await guardrails.detectors(principal, deadline)}
        for each in question.detectors:
            if each.detector_id not in kinds:
                raise NotFound(f"detector `{each.detector_id}` not found", resource=each.detector_id)
            if kinds[each.detector_id] is not question.kind:
                raise unsupported(each.detector_id)
        [verdict], failures = await guardrails.detect(
            principal,
            question.direction,
            question.detectors,
            [question.text],
            deadline,
            question.surroundings,
        )
        for failure in failures:
            raise errors.DetectorFailed(failure)
        return json_answer(text.answer(verdict.findings))

    shown = answers(FOUND, {int(status): text for status, text in REFUSALS.items()})

    @routes.post("/content", summary="What detectors find in a text", responses=shown, openapi_extra=body(CONTENT))
    async def content(request: Request) -> Response:
        """Detectors of the kind `text_contents`."""
        return await found(request, text.content)

    @routes.post(
        "/chat", summary="What detectors find in a conversation", responses=shown, openapi_extra=body(CHAT)
    )
    async def chat(request: Request) -> Response:
        """Detectors of the kind `text_chat`."""
        return await found(request, text.chat)

    @routes.post(
        "/context",
        summary="What detectors find in a text that should rest on others",
        responses=shown,
        openapi_extra=body(CONTEXT),
    )
    async def context(request: Request) -> Response:
        """Detectors of the kind `text_context_doc`."""
        return await found(request, text.context)

    @routes.post(
        "/generated",
        summary="What detectors find in a generated text",
        responses=shown,
        openapi_extra=body(GENERATED),
    )
    async def generated(request: Request) -> Response:
        """Detectors of the kind `text_generation`."""
        return await found(request, text.generated)

    return routes


async def _body(request: Request) -> bytes:
    if not request.headers.get("content-type"):
        raise UnsupportedMedia("Content-Type must be application/json.", field="content-type")
    return await json_body(request)

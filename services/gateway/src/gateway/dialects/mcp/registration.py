"""The route of the Model Context Protocol, with its errors and its OpenAPI description."""

from collections.abc import Mapping

import msgspec
from servicekit.errors import CausewayError, http_status

from gateway.dialects.openapi import Schema
from gateway.dialects.problem import SERVER_ERROR
from gateway.dialects.registration import Registration
from gateway.frontends.profiles import Frontend
from gateway.routing.route import AdmissionClass, IndexReach, QuotaUnit, Role, Route

PATH = "/mcp"
TAG = "mcp"

_INVALID_REQUEST, _INTERNAL = -32600, -32603
_MESSAGE: Schema = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"]},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
    "example": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
}
_RESPONSE: Schema = {"type": "object"}
_ERROR: Schema = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "error": {
            "type": "object",
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
        },
    },
}


def error_body(_frontend: Frontend, _headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
    """Return the body of an error that occurs before the MCP server reads the message."""
    code = _INTERNAL if http_status(error) >= SERVER_ERROR else _INVALID_REQUEST
    return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.message}})


ROUTE = Route(
    PATH,
    "POST",
    Role.ASK,
    IndexReach.PROFILE,
    AdmissionClass.INTERACTIVE,
    QuotaUnit.TOKENS,
    errors=error_body,
    accepts_trailing_slash=True,
    is_resource=True,
)


def registration() -> Registration:
    """Return the registration of the dialect."""
    refusals = {
        "400": "The message is invalid",
        "404": "The method does not exist",
        "406": "The client must accept application/json, and text/event-stream if the response is a stream",
        "413": "The body is too large",
        "415": "The media type of the body is not supported",
        "429": "A quota is exhausted; see Retry-After and x-ratelimit-…",
        "503": "The gateway is overloaded; see Retry-After",
    }
    operation: Schema = {
        "summary": "Tools, documents and prompts for agents",
        "description": "One message of the Model Context Protocol (streamable HTTP), in the protocol "
        "versions 2025-11-25 and 2026-07-28. docs/mcp.md describes the tools.",
        "tags": [TAG],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}},
        "responses": {
            "200": {
                "description": "The response",
                "content": {"application/json": {"schema": _RESPONSE}, "text/event-stream": {}},
            },
            "202": {"description": "A notification was accepted"},
            **{
                status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
                for status, text in refusals.items()
            },
        },
    }
    return Registration(
        chats=(),
        tags={TAG: "The Model Context Protocol, with which agents use the documents."},
        errors_below={f"{PATH}/": error_body},
        operations={PATH: operation},
    )

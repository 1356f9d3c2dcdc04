"""The Streamable HTTP transport of the package `mcp`. The first message loads this module, because it is large."""

import asyncio
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gateway.answering.document_reader import DocumentReader
from gateway.answering.pipeline import Pipeline
from gateway.dialects.mcp.agent_request import SCOPE_KEY, AgentRequest
from gateway.dialects.mcp.calls import Calls
from gateway.dialects.mcp.resources import Resources
from gateway.dialects.mcp.server import mcp_server
from gateway.ports.documents import Catalogue
from gateway.ports.index_management import Indexes
from gateway.routes.rest import VERSION
from gateway.server.responses import NOSNIFF

_MAX_BYTES = 2**40  # `BodyLimit` applies the real limit


class McpTransport:
    """Answers messages with the server of the package `mcp`.

    Args:
        server: Handles the messages.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def answer(
        self, scope: Scope, body: bytes, client_left: asyncio.Event, send: Send, *, streaming: bool
    ) -> None:
        """Answer one message.

        Args:
            scope: The request, with its `AgentRequest`.
            body: The message.
            client_left: Set when the client has left.
            send: Sends the answer.
            streaming: Whether to answer with a stream where the protocol allows both a stream and a JSON object.
        """
        # Each request has its own manager, so that its tasks end with the request.
        manager = StreamableHTTPSessionManager(
            self._server, json_response=not streaming, stateless=True, max_request_body_size=_MAX_BYTES
        )

        async def send_plain(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["status"] = int(message["status"])  # the package sends an enumeration
                message["headers"] = [*message["headers"], NOSNIFF]
            await send(message)

        async with manager.run():
            await manager.handle_request(scope, _replayed(body, client_left), send_plain)


def transport_of(
    pipeline: Pipeline, reader: DocumentReader, catalogue: Catalogue, indexes: Indexes
) -> McpTransport:
    """Return the transport of the gateway's server.

    Args:
        pipeline: Answers questions.
        reader: Searches passages and reads documents.
        catalogue: Lists and reads documents.
        indexes: Lists the indexes.
    """
    calls = Calls(pipeline, reader, indexes)
    return McpTransport(mcp_server(calls, Resources(calls, catalogue, indexes), _agent_request_of, VERSION))


def _replayed(body: bytes, client_left: asyncio.Event) -> Receive:
    pieces = iter([body])

    async def receive() -> Message:
        for piece in pieces:
            return {"type": "http.request", "body": piece}
        await client_left.wait()
        return {"type": "http.disconnect"}

    return receive


def _agent_request_of(request: Request) -> AgentRequest:
    agent: AgentRequest = request.scope[SCOPE_KEY]
    return agent

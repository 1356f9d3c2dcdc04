"""Serves ``POST /mcp`` as a raw ASGI application. Each request has one message of the Model Context Protocol.

The gateway keeps no state between requests, so every replica can serve every request.
"""

import asyncio
import hashlib
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, InvalidRequest, MethodNotAllowed
from servicekit.tasks import cancel_and_wait
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from gateway.answering.document_reader import DocumentReader
from gateway.answering.pipeline import Pipeline
from gateway.dialects.mcp.agent_request import SCOPE_KEY, AgentRequest, agent_profile
from gateway.dialects.mcp.registration import PATH
from gateway.identity.caller import Caller
from gateway.ports.documents import Catalogue
from gateway.ports.index_management import Indexes
from gateway.routes.body import headers_for_detectors, media_type_of, unsupported_media, wait_for_disconnect
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import state_of
from gateway.server.responses import JSON, respond
from gateway.server.running_calls import RunningCalls

# The deadlines of the services end before this one, because their errors are more precise.
_DEADLINE_SLACK_SECONDS = 1.0
if TYPE_CHECKING:
    from gateway.routes.mcp_transport import McpTransport

_STREAM = "text/event-stream"
_JSON_MEDIA = "application/json"
_SESSION = "mcp-session-id"
_INITIALIZE = "initialize"
_CANCELLED = "notifications/cancelled"
_REQUEST_CANCELLED = -32800
_MAX_NAME_LENGTH = 200
_OK = 200


class _Message(msgspec.Struct):
    """The members of a message that the gateway reads itself. The package `mcp` reads all members."""

    id: Any = msgspec.UNSET
    method: Any = None
    params: Any = None

    @property
    def streams(self) -> bool:
        """Return whether the client gets a stream: the call requests progress events, or its tool is slow."""
        if self.method != "tools/call":
            return False
        return self.param("name") == "ask" or _member(self.param("_meta"), "progressToken") is not None

    def param(self, name: str) -> Any:
        """Return a parameter, or None if the message does not have it."""
        return _member(self.params, name)


_message = msgspec.json.Decoder(_Message)


class McpEndpoint:
    """The ASGI application of the path `/mcp`.

    Args:
        pipeline: Answers questions.
        reader: Searches passages and reads documents.
        catalogue: Lists and reads documents.
        indexes: Lists the indexes.
        address: The public address of the gateway.
        calls: Registers the running calls, so that clients can cancel them.
        timeout: The time limit of a request, in seconds.
        passed_headers: The names, in lower case, of the headers that detectors may get.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        reader: DocumentReader,
        catalogue: Catalogue,
        indexes: Indexes,
        address: PublicAddress,
        calls: RunningCalls,
        *,
        timeout: float,
        passed_headers: frozenset[bytes] = frozenset(),
    ) -> None:
        self._ports = pipeline, reader, catalogue, indexes
        self._transport: McpTransport | None = None
        self._loading = asyncio.Lock()
        self._address = address
        self._calls = calls
        self._timeout = timeout
        self._passed_headers = passed_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one message. If the client leaves, cancel the call."""
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{PATH} does not accept {scope['method']}.", details={"allow": "POST"})
        state = state_of(scope)
        state.dialect = "mcp"
        _require_json(Headers(scope=scope))
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        agent = scope[SCOPE_KEY] = self._agent_request(scope)
        state.timeline = agent.timeline
        message, headers = _parse(body), Headers(scope=scope)
        is_cancellation = message.method == _CANCELLED
        exchange = _Exchange(send, begins_session=message.method == _INITIALIZE)
        call = _call_name(state.caller, headers.get(_SESSION, ""), message)
        client_left = asyncio.Event()
        streaming = message.streams and _STREAM in headers.get("accept", "")
        answering = asyncio.ensure_future(self._answer(scope, body, client_left, exchange, streaming=streaming))
        tasks = answering, asyncio.ensure_future(_set_after_disconnect(client_left, receive))
        try:
            if is_cancellation and call:
                await self._calls.cancel(call)
            # The name of a cancellation is that of the call. If it were registered, it would cancel itself.
            registers = call and not is_cancellation
            with self._calls.running(call, answering.cancel) if registers else nullcontext():
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(*tasks)
            state.log |= agent.log
            state.sources, state.done = agent.sources, agent.done
        if not answering.cancelled():
            answering.result()
        elif not client_left.is_set():
            await exchange.end(message)

    async def _answer(
        self, scope: Scope, body: bytes, client_left: asyncio.Event, exchange: "_Exchange", *, streaming: bool
    ) -> None:
        transport = self._transport or await self._load_once()
        try:
            async with asyncio.timeout(self._timeout + _DEADLINE_SLACK_SECONDS):
                await transport.answer(scope, body, client_left, exchange.send, streaming=streaming)
        except TimeoutError as error:
            raise DeadlineExceeded("The request took longer than its deadline.") from error

    async def _load_once(self) -> "McpTransport":
        """Load the transport once, in a thread. Return the transport."""
        async with self._loading:
            if self._transport is None:
                self._transport = await asyncio.to_thread(self._load)
        return self._transport

    def _load(self) -> "McpTransport":
        from gateway.routes.mcp_transport import (
            transport_of,
        )  # imported at the first message, because its libraries are large

        return transport_of(*self._ports)

    def _agent_request(self, scope: Scope) -> AgentRequest:
        state = state_of(scope)
        return AgentRequest(
            frontend=agent_profile(state.frontend),
            principal=state.frontend.principal_for(state.principal, filter_requested=False),
            deadline=Deadline.after(self._timeout),
            timeline=state.timeline,
            base_url=self._address.front_end(scope),
            headers=headers_for_detectors(scope, self._passed_headers),
        )


async def _set_after_disconnect(client_left: asyncio.Event, receive: Receive) -> None:
    await wait_for_disconnect(receive)
    client_left.set()


class _Exchange:
    """The response to one message.

    Args:
        send: Sends the ASGI messages of the response.
        begins_session: Whether the response contains a new session id.
    """

    def __init__(self, send: Send, *, begins_session: bool) -> None:
        self._send = send
        self._begins_session = begins_session
        self._begun = False

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self._begun = True
            if self._begins_session and message["status"] == _OK:
                # The gateway stores nothing under the id. The id only distinguishes the calls of different clients.
                name = (_SESSION.encode(), uuid.uuid4().hex.encode())
                message["headers"] = [*message["headers"], name]
        await self._send(message)

    async def end(self, message: "_Message") -> None:
        """End the response to a cancelled call."""
        if self._begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        error = {"code": _REQUEST_CANCELLED, "message": "The call was cancelled."}
        await respond(
            self._send, _OK, JSON, msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": error})
        )


def _require_json(headers: Headers) -> None:
    """Refuse other media types. The package `mcp` would refuse them with plain text instead of a message."""
    media = media_type_of(headers)
    if media != _JSON_MEDIA:
        raise unsupported_media(_JSON_MEDIA, media)


def _parse(body: bytes) -> "_Message":
    """Return the message.

    Raises:
        InvalidRequest: The body is not an object, or the id is invalid. The package `mcp` would take a request with
            an invalid id for a notification, and not answer it.
    """
    try:
        message = _message.decode(body)
    except msgspec.ValidationError:
        raise InvalidRequest("The body must be one JSON-RPC message, which is a JSON object.") from None
    except (ValueError, RecursionError):
        return _Message()  # the package reports the error
    if message.method is not None and message.id is not msgspec.UNSET and type(message.id) not in (str, int):
        raise InvalidRequest("id must be a string or an integer. Omit it only in notifications.", field="id")
    return message


def _member(value: Any, name: str) -> Any:
    """Return a member of an object, or None if the value is not an object or does not have the member."""
    return value.get(name) if isinstance(value, dict) else None


def _call_name(caller: Caller, session: str, message: "_Message") -> str:
    """Return a name for a call that is unique among all gateways and clients. Empty without a session or an id.

    A notification of a cancelled call gets the name of that call.
    """
    number = message.param("requestId") if message.method == _CANCELLED else message.id
    if not session or type(number) not in (str, int):
        return ""
    namespace = (caller.principal.tenant, caller.principal.owner, caller.key_id, session[:_MAX_NAME_LENGTH])
    return hashlib.sha256(msgspec.json.encode((namespace, number))).hexdigest()

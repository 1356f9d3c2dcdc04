"""``POST /mcp``: one message of the Model Context Protocol, raw ASGI.

Every request is complete in itself. Nothing is kept between requests, so that any gateway can serve any of them.
"""

import asyncio
from typing import Any

import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, MethodNotAllowed
from servicekit.tasks import ended
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gateway.answering.pipeline import Pipeline
from gateway.answering.reading import Reading
from gateway.dialects.mcp.asking import Asking, for_agents
from gateway.dialects.mcp.calls import Calls
from gateway.dialects.mcp.registration import PATH
from gateway.dialects.mcp.resources import Resources
from gateway.dialects.mcp.server import mcp_server
from gateway.ports.documents import Catalogue
from gateway.ports.index_management import Indexes
from gateway.routes.rest import VERSION
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import state_of
from gateway.server.responses import NOSNIFF

# The services' own deadlines come first, because their errors say more.
_SLACK = 1.0
_STREAM = "text/event-stream"
_ASKING = "causeway.mcp"
_MOST_BYTES = 2**40  # the layers around have their own limit


class _Meta(msgspec.Struct, rename="camel"):
    progress_token: Any = None


class _Params(msgspec.Struct):
    name: Any = None
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


class _Asked(msgspec.Struct):
    """What of a message decides how it is answered."""

    method: Any = None
    params: _Params | None = None


_asked = msgspec.json.Decoder(_Asked)


class McpEndpoint:
    """The application of the path.

    Args:
        pipeline: Answers questions.
        reading: Searches passages and reads documents.
        catalogue: Has the documents.
        indexes: Knows the indexes.
        address: Says where clients find the gateway.
        timeout: Seconds that a request may take.
        passed_headers: Names of the requests' headers that detectors may get, in lower case.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        reading: Reading,
        catalogue: Catalogue,
        indexes: Indexes,
        address: PublicAddress,
        *,
        timeout: float,
        passed_headers: frozenset[str] = frozenset(),
    ) -> None:
        calls = Calls(pipeline, reading, indexes)
        self._server: Server[Any] = mcp_server(calls, Resources(calls, catalogue, indexes), _asking_of, VERSION)
        self._address = address
        self._timeout = timeout
        self._passed_headers = passed_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one message; a client that leaves stops everything that runs for it."""
        if scope["method"] != "POST":
            raise MethodNotAllowed(f"{PATH} does not take {scope['method']}.", details={"allow": "POST"})
        state = state_of(scope)
        state.dialect = "mcp"
        body = await Request(scope, receive).body()
        asking = scope[_ASKING] = self._asking(scope)
        state.timeline = asking.timeline
        left = asyncio.Event()
        tasks = (
            asyncio.ensure_future(self._answer(scope, body, left, send)),
            asyncio.ensure_future(_leaving(receive, left)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*tasks)
            state.log |= asking.log
            state.sources, state.done = asking.sources, asking.done
        if not tasks[0].cancelled():
            tasks[0].result()

    async def _answer(self, scope: Scope, body: bytes, left: asyncio.Event, send: Send) -> None:
        pieces = iter([body])

        async def receive() -> Message:
            for piece in pieces:
                return {"type": "http.request", "body": piece}
            await left.wait()
            return {"type": "http.disconnect"}

        manager = StreamableHTTPSessionManager(
            self._server,
            json_response=not _streams(Headers(scope=scope), body),
            stateless=True,
            max_request_body_size=_MOST_BYTES,
        )
        # One for each request: what it runs ends with the request.

        async def send_plain(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["status"] = int(message["status"])  # the package writes enumerations
                message["headers"] = [*message["headers"], NOSNIFF]
            await send(message)

        try:
            async with asyncio.timeout(self._timeout + _SLACK), manager.run():
                await manager.handle_request(scope, receive, send_plain)
        except TimeoutError as error:
            raise DeadlineExceeded("The request took longer than its deadline.") from error

    def _asking(self, scope: Scope) -> Asking:
        state = state_of(scope)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return Asking(
            frontend=for_agents(state.frontend),
            principal=state.frontend.principal_for(state.principal, filter_asked=False),
            deadline=Deadline.after(self._timeout),
            timeline=state.timeline,
            base_url=self._address.of(scope),
            headers={name: headers[name] for name in self._passed_headers & headers.keys()},
        )


def _asking_of(request: Request) -> Asking:
    asking: Asking = request.scope[_ASKING]
    return asking


async def _leaving(receive: Receive, left: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    left.set()


def _streams(headers: Headers, body: bytes) -> bool:
    """Return whether a message is answered by a stream: the client takes one, and something is to be told before
    the answer, or the answer takes long.
    """
    if _STREAM not in headers.get("accept", ""):
        return False
    try:
        asked = _asked.decode(body)
    except (ValueError, RecursionError):
        return False
    if asked.params is None or asked.method != "tools/call":
        return False
    return asked.params.name == "ask" or (
        asked.params.meta is not None and asked.params.meta.progress_token is not None
    )

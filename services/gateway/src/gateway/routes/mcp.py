"""``POST /mcp``: one message of the Model Context Protocol, raw ASGI.

Every request is complete in itself. Nothing is kept between requests, so that any gateway can serve any of them.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, MethodNotAllowed
from servicekit.tasks import ended
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from gateway.answering.pipeline import Pipeline
from gateway.answering.reading import Reading
from gateway.dialects.mcp.asking import SCOPE_KEY, Asking, for_agents
from gateway.dialects.mcp.registration import PATH
from gateway.ports.documents import Catalogue
from gateway.ports.index_management import Indexes
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import state_of

# The services' own deadlines come first, because their errors say more.
_SLACK = 1.0
if TYPE_CHECKING:
    from gateway.routes.mcp_transport import McpTransport

_STREAM = "text/event-stream"


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
        self._ports = pipeline, reading, catalogue, indexes
        self._transport: McpTransport | None = None
        self._loading = asyncio.Lock()
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
        asking = scope[SCOPE_KEY] = self._asking(scope)
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
        transport = self._transport or await self._loaded()
        streaming = _streams(Headers(scope=scope), body)
        try:
            async with asyncio.timeout(self._timeout + _SLACK):
                await transport.answer(scope, body, left, send, streaming=streaming)
        except TimeoutError as error:
            raise DeadlineExceeded("The request took longer than its deadline.") from error

    async def _loaded(self) -> "McpTransport":
        """The transport, which is made once; other requests go on meanwhile."""
        async with self._loading:
            if self._transport is None:
                self._transport = await asyncio.to_thread(self._load)
        return self._transport

    def _load(self) -> "McpTransport":
        from gateway.routes.mcp_transport import McpTransport  # its libraries are large, and may not be needed

        return McpTransport(*self._ports)

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

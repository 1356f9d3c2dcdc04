"""Which dialect answers a chat request.

In this order: a fixed path, whose meaning never changes; the dialect of the front end that the request belongs to,
where it has the path; what the request itself tells; the default.
"""

from collections.abc import Mapping, Sequence

from servicekit.errors import InvalidRequest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends import Frontend
from gateway.pipeline import Pipeline
from gateway.protocols import reading
from gateway.protocols.chat_2024_01 import Chat202401
from gateway.protocols.chat_2024_01_28 import Chat20240128
from gateway.protocols.chat_2024_04 import Chat202404
from gateway.protocols.chat_2024_05_29 import Chat20240529
from gateway.protocols.chat_2026_04_10 import Chat20260410
from gateway.protocols.exchange import Dialect
from gateway.routes.chat import ChatEndpoint, Chooser

_FORM = b"multipart/form-data"
_SDK = b"ts-http-runtime"


class Stages:
    """The stages of the RAG chat protocol, and the paths that each of them has below its own prefix.

    Attributes:
        rag: The first, whose requests have a switch for streams.
        interim: The default.
        typespec: The one that the npm client speaks.
    """

    def __init__(self) -> None:
        self.rag, second = Chat202401(), Chat20240128()
        self.interim, self.typespec, latest = Chat202404(), Chat20240529(), Chat20260410()
        self._having: dict[str, tuple[Dialect, ...]] = {
            "/chat": (self.rag, second, self.interim, self.typespec, latest),
            "/chat/stream": (self.interim, self.typespec, latest),
            "/ask": (self.rag,),
        }

    def names(self) -> frozenset[str]:
        """What profiles may call them."""
        return frozenset(dialect.name for dialect in self._having["/chat"])

    def fixed(self) -> dict[str, Dialect]:
        """The paths whose meaning never changes."""
        return {f"/{stage.name}{path}": stage for path, stages in self._having.items() for stage in stages}

    def below(self, path: str) -> Dialect | None:
        """The stage whose prefix a path begins with, whether there is anything at the path or not."""
        return self.at("/chat").get(path[1:].partition("/")[0])

    def bare(self) -> dict[str, "BarePath"]:
        """The paths that are shared."""
        return {path: BarePath(path, self) for path in self._having}

    def at(self, path: str) -> dict[str, Dialect]:
        """Those that have a path, by their names."""
        return {dialect.name: dialect for dialect in self._having[path]}


class BarePath:
    """A path that several stages share: tells by the request which of them is spoken.

    Args:
        path: ``/chat``, ``/chat/stream`` or ``/ask``.
        stages: Those that there are.
    """

    def __init__(self, path: str, stages: Stages) -> None:
        self._path = path
        self._stages = stages
        self._spoken = stages.at(path)

    def __call__(self, frontend: Frontend, headers: Mapping[bytes, bytes], body: bytes) -> Dialect:
        """The dialect of a request; ``body`` is empty as long as it has not come."""
        named = self._spoken.get(frontend.dialect)
        if named is not None and (frontend.mount or frontend.hosts or frontend.origins):
            return named
        if self._path == "/ask":
            return self._stages.rag
        agents = headers.get(b"user-agent", b"") + headers.get(b"x-ms-useragent", b"")
        if _SDK in agents or headers.get(b"content-type", b"").lower().startswith(_FORM):
            return self._stages.typespec
        # Most bodies need no second look; a name may be written with escapes.
        if b"sessionState" in body or b"stream" in body or b"\\u00" in body:
            members = _members(body)
            if "sessionState" in members:
                return self._stages.typespec
            if "stream" in members and self._path == "/chat":
                return self._stages.rag
        return named or self._stages.interim


def _members(body: bytes) -> Sequence[str]:
    try:
        return tuple(reading.members(body))
    except InvalidRequest:
        # Whatever dialect is spoken, it will say what is wrong.
        return ()


def always(dialect: Dialect) -> Chooser:
    """Chooses one dialect, whatever is asked."""
    return lambda _frontend, _headers, _body: dialect


def chat_endpoints(
    pipeline: Pipeline,
    openai: Dialect,
    stages: Stages,
    *,
    timeout: float,
    passed_headers: frozenset[str] = frozenset(),
) -> dict[str, ChatEndpoint]:
    """All chat paths, with what answers there.

    Args:
        pipeline: Answers.
        openai: Speaks at ``/v1/chat/completions``.
        stages: Speak at the other paths.
        timeout: Seconds a whole answer may take.
        passed_headers: Names of the requests' headers that detectors may get, in lower case.
    """

    def endpoint(path: str, choose: Chooser, *, streaming: bool | None) -> ChatEndpoint:
        return ChatEndpoint(
            choose,
            pipeline,
            timeout=timeout,
            streaming=streaming,
            single_turn=path.endswith("/ask"),
            passed_headers=passed_headers,
        )

    def stage(path: str, choose: Chooser) -> ChatEndpoint:
        return endpoint(path, choose, streaming=path.endswith("/stream"))

    return {
        "/v1/chat/completions": endpoint("/v1/chat/completions", always(openai), streaming=None),
        **{path: stage(path, always(dialect)) for path, dialect in stages.fixed().items()},
        **{path: stage(path, choose) for path, choose in stages.bare().items()},
    }


class ChatRoutes:
    """Answers the chat paths; what is asked of others goes to another application.

    A look-up, because the matching of a router and the layers that a framework puts around each of its routes would
    cost a sixth of what a short answer does.

    Args:
        endpoints: By path.
        others: All other paths.
    """

    def __init__(self, endpoints: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._endpoints = endpoints
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._others(scope, receive, send)
        else:
            scope["http.route"] = scope["path"]
            await endpoint(scope, receive, send)

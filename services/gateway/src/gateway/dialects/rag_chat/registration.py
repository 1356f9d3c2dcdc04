"""The routes of the RAG chat protocol, and the choice of the stage that answers a request.

The order of priority: a fixed path, which always has one stage; the dialect of the request's front end, if it has
the path; the form of the request; the default.
"""

from collections.abc import Mapping, Sequence

from servicekit.errors import CausewayError, InvalidRequest

from gateway.dialects import json_fields
from gateway.dialects.exchange import Dialect
from gateway.dialects.rag_chat import openapi
from gateway.dialects.rag_chat.chat_2024_01 import Chat202401, Chat20240128
from gateway.dialects.rag_chat.chat_2024_04 import Chat202404
from gateway.dialects.rag_chat.chat_2024_05_29 import Chat20240529
from gateway.dialects.rag_chat.chat_2026_04_10 import Chat20260410
from gateway.dialects.registration import ChatRoute, Chooser, Registration, always
from gateway.frontends.profiles import Frontend
from gateway.routing.route import Errors

_FORM = b"multipart/form-data"
_SDK = b"ts-http-runtime"


class Stages:
    """The stages of the RAG chat protocol, and their paths below their own prefixes.

    Attributes:
        rag: The stage of January 2024, whose requests select a stream in the body.
        interim: The default stage.
        typespec: The stage of the npm client.
    """

    def __init__(self) -> None:
        self.rag, second = Chat202401(), Chat20240128()
        self.interim, self.typespec, latest = Chat202404(), Chat20240529(), Chat20260410()
        self._by_path: dict[str, tuple[Dialect, ...]] = {
            "/chat": (self.rag, second, self.interim, self.typespec, latest),
            "/chat/stream": (self.interim, self.typespec, latest),
            "/ask": (self.rag,),
        }

    def names(self) -> frozenset[str]:
        """Return the names of the stages in profiles."""
        return frozenset(dialect.name for dialect in self._by_path["/chat"])

    def fixed(self) -> dict[str, Dialect]:
        """Return the paths with one fixed stage."""
        fixed: dict[str, Dialect] = {
            f"/{stage.name}{path}": stage for path, stages in self._by_path.items() for stage in stages
        }
        # The path of Microsoft's sample of the npm client.
        return fixed | {"/api/chat": self.typespec, "/api/chat/stream": self.typespec}

    def bare(self) -> dict[str, "BarePath"]:
        """Return the shared paths."""
        return {path: BarePath(path, self) for path in self._by_path}

    def at(self, path: str) -> dict[str, Dialect]:
        """Return the stages that have a path, by name."""
        return {dialect.name: dialect for dialect in self._by_path[path]}


class BarePath:
    """A path that several stages share. The request selects the stage.

    Args:
        path: ``/chat``, ``/chat/stream`` or ``/ask``.
        stages: The stages.
    """

    def __init__(self, path: str, stages: Stages) -> None:
        self._path = path
        self._stages = stages
        self._by_name = stages.at(path)

    def __call__(self, frontend: Frontend, headers: Mapping[bytes, bytes], body: bytes) -> Dialect:
        """Return the dialect of a request; ``body`` is empty until it was read."""
        named = self._by_name.get(frontend.dialect)
        if named is not None and (frontend.mount or frontend.hosts or frontend.origins):
            return named
        if self._path == "/ask":
            return self._stages.rag
        agents = headers.get(b"user-agent", b"") + headers.get(b"x-ms-useragent", b"")
        if _SDK in agents or headers.get(b"content-type", b"").lower().startswith(_FORM):
            return self._stages.typespec
        # Most bodies need no parsing. A member's name may contain escapes.
        if b"sessionState" in body or b"stream" in body or b"\\u00" in body:
            members = _members(body)
            if "sessionState" in members:
                return self._stages.typespec
            if "stream" in members and self._path == "/chat":
                return self._stages.rag
        return named or self._stages.interim


def _members(body: bytes) -> Sequence[str]:
    try:
        return tuple(json_fields.members(body))
    except InvalidRequest:
        # Each dialect reports an invalid body.
        return ()


def registration() -> Registration:
    """Register all stages of the protocol."""
    stages = Stages()
    described = openapi.paths()

    def chat(path: str, choose: Chooser) -> ChatRoute:
        streaming, single = path.endswith("/stream"), path.endswith("/ask")
        return ChatRoute(path, choose, described[path], streaming, single)

    choosers = {path: always(stage) for path, stage in stages.fixed().items()} | stages.bare()
    return Registration(
        chats=tuple(chat(path, choose) for path, choose in choosers.items()),
        tags=openapi.TAGS,
        errors_below={f"/{name}/": _errors_of(stage) for name, stage in stages.at("/chat").items()},
        profile_names=stages.names(),
    )


def _errors_of(stage: Dialect) -> Errors:
    def errors(_frontend: Frontend, _headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
        return stage.error(error)

    return errors

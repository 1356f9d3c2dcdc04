"""The routes of the RAG chat protocol, and the choice of the stage that answers a request.

The gateway chooses the first stage that exists in this order:

1. the only stage of the path,
2. the stage that the front end's profile names, if the profile has a mount, a host or an origin, and the stage has
   the path,
3. the stage that the request's user agent or format indicates; ``/ask`` always has the stage of January 2024,
4. the stage that a profile without mount, host and origin names, if the stage has the path,
5. the stage of April 2024.
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
    """The stages of the RAG chat protocol, and the paths of each.

    Attributes:
        january_2024: The stage of January 2024, whose requests select a stream in the body.
        april_2024: The default stage.
        may_2024: The stage of the npm client ``@microsoft/ai-chat-protocol``.
    """

    def __init__(self) -> None:
        self.january_2024, january_28 = Chat202401(), Chat20240128()
        self.april_2024, self.may_2024, april_2026 = Chat202404(), Chat20240529(), Chat20260410()
        self._by_path: dict[str, tuple[Dialect, ...]] = {
            "/chat": (self.january_2024, january_28, self.april_2024, self.may_2024, april_2026),
            "/chat/stream": (self.april_2024, self.may_2024, april_2026),
            "/ask": (self.january_2024,),
        }

    def names(self) -> frozenset[str]:
        """Return the names of the stages in profiles."""
        return frozenset(dialect.name for dialect in self._by_path["/chat"])

    def single_stage_paths(self) -> dict[str, Dialect]:
        """Return the stage of each path that has only one stage."""
        fixed: dict[str, Dialect] = {
            f"/{stage.name}{path}": stage for path, stages in self._by_path.items() for stage in stages
        }
        # Microsoft's sample application for the npm client uses these paths.
        return fixed | {"/api/chat": self.may_2024, "/api/chat/stream": self.may_2024}

    def bare_paths(self) -> dict[str, "BarePath"]:
        """Return the paths without the prefix of a stage, each with the object that chooses its stage."""
        return {path: BarePath(path, self) for path in self._by_path}

    def named_stages(self, path: str) -> dict[str, Dialect]:
        """Return the stages with this path, by name."""
        return {dialect.name: dialect for dialect in self._by_path[path]}


class BarePath:
    """A path without the prefix of a stage. Several stages may share it, and the request selects the stage.

    Args:
        path: ``/chat``, ``/chat/stream`` or ``/ask``.
        stages: The stages.
    """

    def __init__(self, path: str, stages: Stages) -> None:
        self._path = path
        self._stages = stages
        self._by_name = stages.named_stages(path)

    def __call__(self, frontend: Frontend, headers: Mapping[bytes, bytes], body: bytes) -> Dialect:
        """Return the dialect of a request. The body is empty before the gateway has read it."""
        named = self._by_name.get(frontend.dialect)
        if named is not None and (frontend.mount or frontend.hosts or frontend.origins):
            return named
        if self._path == "/ask":
            return self._stages.january_2024
        user_agents = headers.get(b"user-agent", b"") + headers.get(b"x-ms-useragent", b"")
        if _SDK in user_agents or headers.get(b"content-type", b"").lower().startswith(_FORM):
            return self._stages.may_2024
        # Most bodies need no parsing. A body with escapes does, because they may hide a member's name.
        if b"sessionState" in body or b"stream" in body or b"\\u00" in body:
            members = _members(body)
            if "sessionState" in members:
                return self._stages.may_2024
            if "stream" in members and self._path == "/chat":
                return self._stages.january_2024
        return named or self._stages.april_2024


def _members(body: bytes) -> Sequence[str]:
    try:
        return tuple(json_fields.members(body))
    except InvalidRequest:
        # The chosen dialect refuses an invalid body later.
        return ()


def registration() -> Registration:
    """Return the registration of the protocol, with all its stages."""
    stages = Stages()
    described = openapi.paths()

    def chat(path: str, choose: Chooser) -> ChatRoute:
        streaming, single = path.endswith("/stream"), path.endswith("/ask")
        return ChatRoute(path, choose, described[path], streaming, single)

    choosers = {path: always(stage) for path, stage in stages.single_stage_paths().items()} | stages.bare_paths()
    return Registration(
        chats=tuple(chat(path, choose) for path, choose in choosers.items()),
        tags=openapi.TAGS,
        errors_below={f"/{name}/": _errors_of(stage) for name, stage in stages.named_stages("/chat").items()},
        profile_names=stages.names(),
    )


def _errors_of(stage: Dialect) -> Errors:
    def errors(_frontend: Frontend, _headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
        return stage.error(error)

    return errors

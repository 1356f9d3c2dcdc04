"""The registration of a dialect: its chat routes, the format of its errors, its names in profiles, its OpenAPI."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from servicekit.errors import CausewayError

from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import Schema
from gateway.frontends.profiles import Frontend
from gateway.routing.route import AdmissionClass, Errors, IndexReach, QuotaUnit, Role, Route

Chooser = Callable[[Frontend, Mapping[bytes, bytes], bytes], Dialect]
"""Returns the dialect for a profile, headers and body; the body is empty until it was read."""


def always(dialect: Dialect) -> Chooser:
    """Return a chooser of one dialect for all requests."""
    return lambda _frontend, _headers, _body: dialect


@dataclass(frozen=True, slots=True)
class ChatRoute:
    """A path whose requests the pipeline answers.

    Attributes:
        path: In Starlette's format. Its only parameter is ``model``, which has priority over the body's.
        choose: Chooses the dialect of a request.
        operation: Its description in the OpenAPI document.
        streaming: Whether the path requests a stream; None: the body decides.
        single_turn: Only the last message of the user counts.
        stores: Its answers can be stored and continued.
    """

    path: str
    choose: Chooser
    operation: Schema
    streaming: bool | None = None
    single_turn: bool = False
    stores: bool = False

    @property
    def route(self) -> Route:
        """Return the route: an interactive question, which uses tokens and keeps to the indexes of the profile."""
        return Route(
            self.path,
            "POST",
            Role.ASK,
            IndexReach.PROFILE,
            AdmissionClass.INTERACTIVE,
            QuotaUnit.TOKENS,
            errors=self._errors,
            takes_slash=True,
        )

    def _errors(self, frontend: Frontend, headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
        return self.choose(frontend, headers, b"").error(error)


@dataclass(frozen=True, slots=True)
class Registration:
    """A dialect, or a family of dialects.

    Attributes:
        chats: Its chat routes.
        tags: The groups of its routes in the OpenAPI document, with their descriptions.
        errors_below: The format of errors at paths with a prefix and without a route.
        profile_names: Values of the key ``dialect`` of a profile.
        operations: Descriptions of its other routes that FastAPI does not describe, by path.
    """

    chats: tuple[ChatRoute, ...]
    tags: Mapping[str, str]
    errors_below: Mapping[str, Errors] = field(default_factory=dict)
    profile_names: frozenset[str] = frozenset()
    operations: Mapping[str, Schema] = field(default_factory=dict)

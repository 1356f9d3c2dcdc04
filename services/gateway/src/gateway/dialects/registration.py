"""The registration of a dialect: chat routes, format of errors, names in profiles, and OpenAPI descriptions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from servicekit.errors import CausewayError

from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import Schema
from gateway.frontends.profiles import Frontend
from gateway.routing.route import AdmissionClass, Errors, IndexReach, QuotaUnit, Role, Route

Chooser = Callable[[Frontend, Mapping[bytes, bytes], bytes], Dialect]
"""Returns the dialect for a profile, headers and body. The body is empty before the gateway has read it."""


def always(dialect: Dialect) -> Chooser:
    """Return a chooser that returns the same dialect for all requests."""
    return lambda _frontend, _headers, _body: dialect


@dataclass(frozen=True, slots=True)
class ChatRoute:
    """A path of chat requests, which the pipeline answers.

    Attributes:
        path: The path in Starlette's format. It may have the parameter ``model``, which has priority over the model
            in the body.
        choose: Returns the dialect of a request.
        operation: The description in the OpenAPI document.
        streaming: Whether the path requests a stream, or None if the body decides.
        single_turn: Whether only the last message of the user counts.
        stores: Whether a request can continue stored responses. The dialect decides whether an answer is stored.
    """

    path: str
    choose: Chooser
    operation: Schema
    streaming: bool | None = None
    single_turn: bool = False
    stores: bool = False

    @property
    def route(self) -> Route:
        """Return the entry of the route table.

        The route has interactive priority, counts tokens against the quotas, and may search the profile's indexes.
        """
        return Route(
            self.path,
            "POST",
            Role.ASK,
            IndexReach.PROFILE,
            AdmissionClass.INTERACTIVE,
            QuotaUnit.TOKENS,
            errors=self._errors,
            accepts_trailing_slash=True,
        )

    def _errors(self, frontend: Frontend, headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
        return self.choose(frontend, headers, b"").error(error)


@dataclass(frozen=True, slots=True)
class Registration:
    """A dialect, or a family of dialects.

    Attributes:
        chats: The chat routes.
        tags: The descriptions of the groups of routes in the OpenAPI document.
        errors_below: The functions that render the errors of paths without a route, by path prefix.
        profile_names: The values of a profile's key ``dialect``.
        operations: The descriptions of other routes that are not FastAPI routes, by path.
    """

    chats: tuple[ChatRoute, ...]
    tags: Mapping[str, str]
    errors_below: Mapping[str, Errors] = field(default_factory=dict)
    profile_names: frozenset[str] = frozenset()
    operations: Mapping[str, Schema] = field(default_factory=dict)

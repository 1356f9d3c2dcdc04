"""What a dialect registers: its chat routes, the shape of its errors, its names in profiles, its OpenAPI."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from servicekit.errors import CausewayError

from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import Schema
from gateway.frontends.profiles import Frontend
from gateway.routing.route import AdmissionClass, Errors, IndexReach, QuotaUnit, Role, Route

Chooser = Callable[[Frontend, Mapping[bytes, bytes], bytes], Dialect]
"""A request's profile, headers and body → the dialect that is spoken; the body is empty until it has come."""


def always(dialect: Dialect) -> Chooser:
    """Choose one dialect, whatever is asked."""
    return lambda _frontend, _headers, _body: dialect


@dataclass(frozen=True, slots=True)
class ChatRoute:
    """A path whose requests are answered by the pipeline.

    Attributes:
        path: As Starlette writes it. Its one parameter is ``model``, whose value counts instead of the body's.
        choose: Chooses the dialect of a request.
        operation: Its description in the OpenAPI document.
        streaming: What the path says of streaming; None: the body decides.
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
        """The route: a question of a person, which takes tokens and keeps to the indexes of the profile."""
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
        errors_below: How errors look at paths that begin with a prefix and have no route.
        profile_names: What the key ``dialect`` of a profile may say.
        operations: Descriptions of its other routes that FastAPI does not describe, by path.
    """

    chats: tuple[ChatRoute, ...]
    tags: Mapping[str, str]
    errors_below: Mapping[str, Errors] = field(default_factory=dict)
    profile_names: frozenset[str] = frozenset()
    operations: Mapping[str, Schema] = field(default_factory=dict)

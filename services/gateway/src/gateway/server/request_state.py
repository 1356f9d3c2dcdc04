"""The state of a request, shared by the layers and routes."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.answering.timeline import Timeline
from gateway.domain import Done, Passage
from gateway.frontends.profiles import Frontend
from gateway.identity.caller import NOBODY, Caller
from gateway.identity.link_signing import LinkedDocument
from gateway.routing.route import Route

_KEY = "causeway.request"


@dataclass(slots=True)
class RequestState:
    """The state of one request.

    Attributes:
        frontend: The profile that the request belongs to; `frontend_selection` sets it.
        route: The route of the request's path and method; `frontend_selection` sets it.
        no_route: Why there is no route.
        caller: The caller; `authentication` sets it with `identify`.
        identified: Whether `authentication` has accepted a caller.
        linked: The document that a signed link opens; None: the request has a credential of its own.
        trace_id: Id of the request's trace, 32 hex digits.
        status: HTTP status of the response; 0 before it is sent.
        request_bytes: Bytes of the body, once it is complete.
        ingested_bytes: Bytes of a body that contains documents.
        dialect: Name of the dialect; empty if the route has none.
        timeline: The steps of an answer.
        done: The last event of an answer that is complete.
        sources: The passages that a retrieval without a model returned.
        embedded: The model that embedded the request's texts, and the number of their tokens.
        goes_on: The answer continues after the client has disconnected, because it can be read later.
        recorded_later: The usage is recorded in the background, when the answer is complete.
        log: Members that layers and routes add to the request's line in the log.
    """

    frontend: Frontend = field(default_factory=Frontend)
    route: Route | None = None
    no_route: CausewayError | None = None
    caller: Caller = NOBODY
    identified: bool = False
    linked: LinkedDocument | None = None
    trace_id: str = ""
    status: int = 0
    request_bytes: int = 0
    ingested_bytes: int = 0
    dialect: str = ""
    timeline: Timeline = field(default_factory=Timeline)
    done: Done | None = None
    sources: tuple[Passage, ...] | None = None
    embedded: tuple[str, int] | None = None
    goes_on: bool = False
    recorded_later: bool = False
    log: dict[str, str | int] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """Return the principal on whose behalf the request runs."""
        return self.caller.principal

    def identify(self, caller: Caller) -> None:
        """Set the caller, which may still lack a role."""
        self.caller, self.identified = caller, True


def state_of(scope: MutableMapping[str, Any]) -> RequestState:
    """Return the state of the request that an ASGI scope describes; copies of the scope share it."""
    state: RequestState | None = scope.get(_KEY)
    if state is None:
        state = scope[_KEY] = RequestState()
    return state

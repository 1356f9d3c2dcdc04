"""The state of a request, which the middleware and the routes share."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.answering.timeline import Timeline
from gateway.domain import Done, Passage
from gateway.frontends.profiles import Frontend
from gateway.identity.caller import ANONYMOUS, Caller
from gateway.identity.link_signing import LinkedDocument
from gateway.routing.route import Route

_KEY = "causeway.request"


@dataclass(slots=True)
class RequestState:
    """The state of one request.

    Attributes:
        frontend: The profile of the request; `frontend_selection` sets it.
        route: The route of the request's path and method; `frontend_selection` sets it.
        no_route: The error, if the path and method have no route.
        caller: The caller; `authentication` sets it with `identify`.
        identified: Whether `authentication` has accepted a caller.
        linked: The document of a signed link; None: the request has no signed link.
        trace_id: Id of the request's trace, 32 hex digits.
        status: HTTP status of the response; 0 until the request ends, and if no response was sent.
        request_bytes: Bytes of the body, once it is complete.
        ingested_bytes: Bytes of a body that contains documents.
        dialect: Name of the dialect; empty if the route has none.
        timeline: The steps of an answer.
        done: The last event of an answer that is complete, or an event without steps if a background response was
            accepted.
        sources: The passages that a retrieval without a model returned.
        embedded: The model that embedded the request's texts, and the number of their tokens.
        continues: Whether the answer continues after the client has disconnected, because its events are stored and
            clients can read them later.
        recorded_later: Whether a later attempt, or the worker of background responses, records the usage.
        log: Members that layers and routes add to the request's line in the log.
    """

    frontend: Frontend = field(default_factory=Frontend)
    route: Route | None = None
    no_route: CausewayError | None = None
    caller: Caller = ANONYMOUS
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
    continues: bool = False
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
    """Return the state of the request of an ASGI scope. Copies of the scope share the state."""
    state: RequestState | None = scope.get(_KEY)
    if state is None:
        state = scope[_KEY] = RequestState()
    return state

"""The interface between the chat routes and a dialect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from servicekit.errors import CausewayError, http_status
from servicekit.principal import Principal

from gateway.domain import Batch, Turn
from gateway.domain.responses import Before
from gateway.frontends.profiles import Frontend


def _as_it_is(error: CausewayError) -> CausewayError:
    return error


@dataclass(frozen=True, slots=True)
class Media:
    """Content types of a dialect's answers, and their conventions.

    Attributes:
        heartbeat: Bytes that clients of a silent stream ignore; empty: no heartbeats.
        form: Requests may also be forms (``multipart/form-data``).
        retried: Clients retry after a 429 or a 5xx, so these must mean that no tokens were used.
        named: A request must name JSON as its media type; else it may omit it.
        status: Returns the status of an error.
        client_error: Returns the error for clients.
        breaks_off: A failed stream ends with the error and without the end of the answer, so that clients which
            ignore the error notice that the answer is incomplete.
        shows_text: Its clients show only the text of an answer, in which citations may be links.
        fails_inside: An error of a stream is sent inside the stream, after status 200.
    """

    unary: bytes
    stream: bytes
    heartbeat: bytes = b""
    form: bool = False
    retried: bool = False
    named: bool = False
    status: Callable[[CausewayError], int] = http_status
    client_error: Callable[[CausewayError], CausewayError] = _as_it_is
    fails_inside: bool = False
    breaks_off: bool = False
    shows_text: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a chat route.

    Attributes:
        body: The unchanged body.
        principal: The caller.
        frontend: The profile.
        streaming: Whether the path requests a stream; None: the body decides.
        content_type: The header, with its parameters.
        single_turn: Only the last message of the user counts.
        headers: The headers that detectors may get, in lower case.
        before: The stored response that the request continues.
        model: The model in the path, which has priority over the body's; may be empty.
    """

    body: bytes
    principal: Principal
    frontend: Frontend = field(default_factory=Frontend)
    streaming: bool | None = None
    content_type: str = "application/json"
    single_turn: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    before: Before = field(default_factory=Before)


class Exchange(Protocol):
    """One request in one dialect: its turn, and the rendering of its answer. It holds the answer's state."""

    turn: Turn
    streaming: bool
    headers: tuple[tuple[bytes, bytes], ...]
    """Further headers of the answer."""

    def render(self, batch: Batch) -> bytes:
        """Return the next bytes of a streamed answer; may be empty."""
        ...

    def render_failure(self, error: CausewayError) -> bytes:
        """Return the end of a streamed answer that failed after its start."""
        ...

    def take(self, batch: Batch) -> None:
        """Gather events of an answer in one piece.

        Raises:
            Unavailable: The model server sent pieces that cannot be merged.
        """
        ...

    def complete(self) -> bytes:
        """Return the whole answer, after all events."""
        ...


class Dialect(Protocol):
    """A public wire format."""

    name: str
    media: Media

    def parse(self, request: ChatRequest) -> Exchange:
        """Parse a request.

        Raises:
            InvalidRequest: The request is invalid; the error names the field.
        """
        ...

    def error(self, error: CausewayError) -> bytes:
        """Return the body of an error."""
        ...

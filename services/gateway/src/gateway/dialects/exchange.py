"""The interface between the chat routes and a dialect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from servicekit.errors import CausewayError, http_status
from servicekit.principal import Principal

from gateway.domain import Batch, Turn
from gateway.domain.responses import ContinuedData
from gateway.frontends.profiles import Frontend


def _unchanged(error: CausewayError) -> CausewayError:
    return error


@dataclass(frozen=True, slots=True)
class Media:
    """The content types and the conventions of a dialect.

    Attributes:
        unary: The content type of an answer in one piece.
        stream: The content type of a streamed answer.
        heartbeat: Bytes that keep an idle stream open and that clients ignore, or empty for no heartbeats.
        accepts_forms: Whether a request may be a form (``multipart/form-data``).
        clients_retry: Whether clients retry after a 429 or a 5xx. The gateway then uses these statuses only for
            requests that used no tokens.
        requires_json_type: Whether a request must have the header ``Content-Type``. Otherwise it may omit the
            header. In both cases the gateway refuses content types other than JSON and accepted forms.
        status: Returns the HTTP status of an error for clients.
        client_error: Converts an error of the answer to the error for clients, which may hide its details.
        omits_end_on_failure: Whether the gateway omits the end marker of a stream after an error. Clients that
            ignore the error then notice that the answer is incomplete.
        text_only: Whether clients show only the text of an answer, so that citations may become links in it.
        errors_in_stream: Whether an error before the first event is sent in the stream, after status 200.
    """

    unary: bytes
    stream: bytes
    heartbeat: bytes = b""
    accepts_forms: bool = False
    clients_retry: bool = False
    requires_json_type: bool = False
    status: Callable[[CausewayError], int] = http_status
    client_error: Callable[[CausewayError], CausewayError] = _unchanged
    errors_in_stream: bool = False
    omits_end_on_failure: bool = False
    text_only: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a chat route.

    Attributes:
        body: The unchanged body.
        principal: The caller.
        frontend: The profile of the front end.
        streaming: Whether the path requests a stream, or None if ``stream`` in the body decides.
        content_type: The value of the header, with its parameters.
        single_turn: Whether only the last message of the user counts.
        headers: The headers that detectors may receive, with names in lower case.
        continued: The items of the stored response or conversation that the request continues, and the id under
            which the new response is stored.
        model: The model in the path, which has priority over the model in the body; may be empty.
    """

    body: bytes
    principal: Principal
    frontend: Frontend = field(default_factory=Frontend)
    streaming: bool | None = None
    content_type: str = "application/json"
    single_turn: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    continued: ContinuedData = field(default_factory=ContinuedData)


class Exchange(Protocol):
    """One request: its turn, and the renderer of its answer."""

    turn: Turn
    streaming: bool
    headers: tuple[tuple[bytes, bytes], ...]
    """Additional headers of the response."""

    def render(self, batch: Batch) -> bytes:
        """Return the next bytes of a streamed answer, or empty bytes if there is nothing to send yet."""
        ...

    def render_failure(self, error: CausewayError) -> bytes:
        """Return the end of a streamed answer that failed after its start."""
        ...

    def add_events(self, batch: Batch) -> None:
        """Add events to an answer that the gateway sends in one piece.

        Raises:
            Unavailable: The model server sent pieces that cannot be merged.
        """
        ...

    def complete(self) -> bytes:
        """Return the body of an answer in one piece. `add_events` must have received all events."""
        ...


class Dialect(Protocol):
    """A public wire format."""

    name: str
    media: Media

    def parse(self, request: ChatRequest) -> Exchange:
        """Parse a request.

        Raises:
            InvalidRequest: The request is invalid; the error names the field.
            PermissionDenied: The profile does not allow an option of the request; the error names the field.
        """
        ...

    def error(self, error: CausewayError) -> bytes:
        """Return the body of an error."""
        ...

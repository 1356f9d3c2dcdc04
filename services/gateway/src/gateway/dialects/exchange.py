"""What the chat routes need of a dialect."""

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
    """Content types of a dialect's answers.

    Attributes:
        heartbeat: What clients of a silent stream ignore; empty: there is nothing that all of them ignore.
        form: Requests may be forms (``multipart/form-data``), too.
        retried: Clients ask again by themselves after a 429 or a 5xx, which must mean that nothing was spent.
        named: A request must say that it is JSON; else it may leave that open.
        status: Says the status of an error.
        told: Says which error clients get for one that happened.
        breaks_off: A stream that failed ends with the error and without the end of the answer: clients that pass
            over the error notice that the answer is not whole.
        shows_text: Its clients show nothing but the text of an answer, in which citations may be links.
        fails_inside: What fails once a stream was asked for is told inside of it, behind a 200, and is no status.
    """

    unary: bytes
    stream: bytes
    heartbeat: bytes = b""
    form: bool = False
    retried: bool = False
    named: bool = False
    status: Callable[[CausewayError], int] = http_status
    told: Callable[[CausewayError], CausewayError] = _as_it_is
    fails_inside: bool = False
    breaks_off: bool = False
    shows_text: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What came to a chat route.

    Attributes:
        body: As it came.
        principal: Who asks.
        frontend: The profile that it belongs to.
        streaming: What the path says of streaming; None where the body decides.
        content_type: The header, with its parameters.
        single_turn: Only the last message of the user counts.
        headers: Those that detectors may get, in lower case.
        before: What the request continues, in the one dialect that stores responses.
        model: The model that the path names, which comes before the body's; empty where there is none.
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
    """One request in one dialect: what it asks, and how its answer is written. Keeps the answer's state."""

    turn: Turn
    streaming: bool
    headers: tuple[tuple[bytes, bytes], ...]
    """Headers that the answer has besides the usual ones."""

    def render(self, batch: Batch) -> bytes:
        """The next bytes of a streamed answer; may be empty."""
        ...

    def render_failure(self, error: CausewayError) -> bytes:
        """The end of a streamed answer that failed after it began."""
        ...

    def take(self, batch: Batch) -> None:
        """Gathers events of an answer that goes out in one piece.

        Raises:
            Unavailable: The model server sent something that cannot be put together.
        """
        ...

    def complete(self) -> bytes:
        """The whole answer, once all its events were taken."""
        ...


class Dialect(Protocol):
    """A public wire format."""

    name: str
    media: Media

    def parse(self, request: ChatRequest) -> Exchange:
        """What a request asks.

        Raises:
            InvalidRequest: Names the field.
        """
        ...

    def error(self, error: CausewayError) -> bytes:
        """The body of an answer whose status is the error's."""
        ...

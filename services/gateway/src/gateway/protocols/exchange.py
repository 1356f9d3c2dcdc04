"""What the chat routes need of a dialect."""

from dataclasses import dataclass
from typing import Protocol

from servicekit.errors import CausewayError
from servicekit.principal import Principal

from gateway.domain import Batch, Turn


@dataclass(frozen=True, slots=True)
class Media:
    """Content types of a dialect's answers."""

    unary: bytes
    stream: bytes


class Exchange(Protocol):
    """One request in one dialect: what it asks, and how its answer is written. Keeps the answer's state."""

    turn: Turn
    streaming: bool

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

    def parse(self, body: bytes, principal: Principal, *, streaming: bool | None) -> Exchange:
        """What a request asks.

        Args:
            body: The request's body.
            principal: Who asks.
            streaming: What the path says of streaming; None where the body decides.

        Raises:
            InvalidRequest: Names the field.
        """
        ...

    def error(self, error: CausewayError) -> bytes:
        """The body of an answer whose status is the error's."""
        ...

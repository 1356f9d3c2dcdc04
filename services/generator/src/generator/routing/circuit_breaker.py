"""A circuit breaker: who keeps failing is left alone for a while, then tried by one request."""

import enum
import time
from collections.abc import Callable, Hashable

import structlog
from servicekit.errors import Unavailable

_log = structlog.get_logger(__name__)


class State(enum.Enum):
    """Whether requests go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """Opens when requests fail in a row; when its time is over, one request at a time tries whether it may close.

    Tries of one request count as one failure, so that a single question that a server cannot answer, and is asked
    again and again, does not keep other callers from the server.

    Args:
        name: Of what it protects, for the log.
        failures: Requests that fail in a row, until it opens.
        seconds: That it stays open before a request may try.
        clock: Monotonic seconds.
    """

    def __init__(
        self, name: str, *, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failed_requests: set[Hashable] = set()
        self._in_doubt = False
        self._opened_at: float | None = None
        self._trying: Call | None = None

    @property
    def state(self) -> State:
        """As of now."""
        if self._opened_at is None:
            return State.CLOSED
        return State.OPEN if self.retry_after > 0 else State.HALF_OPEN

    @property
    def retry_after(self) -> float:
        """Seconds until a request may try; 0 where it may now, or where another one is trying."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._seconds - self._clock())

    @property
    def admits(self) -> bool:
        """A call may begin now."""
        return self._opened_at is None or (self._trying is None and self.retry_after == 0)

    def call(self, request: Hashable = None) -> "Call":
        """Begins a call, which has to be ended.

        Args:
            request: What the call is a try of; None: of a request of its own.

        Raises:
            Unavailable: None may begin now.
        """
        if not self.admits:
            raise Unavailable("The model server has been failing.", retry_after=max(1.0, self.retry_after))
        call = Call(self, request)
        if self._opened_at is not None:
            self._trying = call
        return call

    def _answering(self, call: "Call") -> None:
        if self._trying is call:
            self._trying = self._opened_at = None
            # Until an answer has come whole, the next failure opens it again.
            self._in_doubt = True
            _log.info("circuit closed", deployment=self._name)

    def _completed(self, call: "Call") -> None:
        self._answering(call)
        if self._opened_at is None:
            self._failed_requests.clear()
            self._in_doubt = False

    def _failed(self, call: "Call") -> None:
        if self._trying is call:
            self._trying = None
            self._opened_at = self._clock()
        elif self._opened_at is None:
            self._failed_requests.add(call.request)
            if self._in_doubt or len(self._failed_requests) >= self._most:
                self._opened_at = self._clock()
                failures = len(self._failed_requests)
                self._failed_requests.clear()
                _log.warning("circuit opened", deployment=self._name, failures=failures, seconds=self._seconds)

    def _left(self, call: "Call") -> None:
        if self._trying is call:
            self._trying = None


class Call:
    """One call through a circuit. `answering` may come first; then one of the others ends it."""

    __slots__ = ("_circuit", "request")

    def __init__(self, circuit: CircuitBreaker, request: Hashable) -> None:
        self._circuit = circuit
        self.request = object() if request is None else request

    def answering(self) -> None:
        """The server has begun to answer, or refused what it was asked: it is there."""
        self._circuit._answering(self)

    def completed(self) -> None:
        """The answer came whole."""
        self._circuit._completed(self)

    def failed(self) -> None:
        """The server failed."""
        self._circuit._failed(self)

    def left(self) -> None:
        """The caller left, or was at fault: this says nothing about the server."""
        self._circuit._left(self)

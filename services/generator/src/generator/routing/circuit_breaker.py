"""A circuit breaker: a failing server gets no requests for some time, and then one test request."""

import enum
import time
from collections.abc import Callable, Hashable

import structlog
from servicekit.errors import Unavailable

_log = structlog.get_logger(__name__)


class State(enum.Enum):
    """The state of a circuit, which determines whether it admits requests."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """Opens after consecutive failed requests; after some time it admits one test request at a time.

    Several failed attempts of one request count as one failure. Otherwise one question that a server cannot answer
    would block the server for all callers.

    Args:
        name: The name of the protected server, for the log.
        failures: The number of consecutive failed requests that opens the circuit.
        seconds: The time for which the circuit stays open before it admits a test request.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, name: str, *, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._max_failures = failures
        self._seconds = seconds
        self._clock = clock
        self._failed_requests: set[Hashable] = set()
        self._in_doubt = False
        self._opened_at: float | None = None
        self._test_call: Call | None = None

    @property
    def state(self) -> State:
        """Return the current state."""
        if self._opened_at is None:
            return State.CLOSED
        return State.OPEN if self.retry_after > 0 else State.HALF_OPEN

    @property
    def retry_after(self) -> float:
        """Return the seconds until a test request may begin; 0 if it may begin now or is running."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._seconds - self._clock())

    @property
    def admits(self) -> bool:
        """Return whether a call may begin now."""
        return self._opened_at is None or (self._test_call is None and self.retry_after == 0)

    def call(self, request: Hashable = None) -> "Call":
        """Begin a call and return it; the caller must end the call.

        Args:
            request: Identifies the request that the call belongs to; None: a request of its own.

        Raises:
            Unavailable: No call may begin now.
        """
        if not self.admits:
            raise Unavailable(
                "The last requests to the model server failed; try again later.",
                retry_after=max(1.0, self.retry_after),
            )
        call = Call(self, request)
        if self._opened_at is not None:
            self._test_call = call
        return call

    def _responded(self, call: "Call") -> None:
        if self._test_call is call:
            self._test_call = self._opened_at = None
            # The next failure before a complete answer opens the circuit again.
            self._in_doubt = True
            _log.info("circuit closed", deployment=self._name)

    def _completed(self, call: "Call") -> None:
        self._responded(call)
        if self._opened_at is None:
            self._failed_requests.clear()
            self._in_doubt = False

    def _failed(self, call: "Call") -> None:
        if self._test_call is call:
            self._test_call = None
            self._opened_at = self._clock()
        elif self._opened_at is None:
            self._failed_requests.add(call.request)
            if self._in_doubt or len(self._failed_requests) >= self._max_failures:
                self._opened_at = self._clock()
                failures = len(self._failed_requests)
                self._failed_requests.clear()
                _log.warning("circuit opened", deployment=self._name, failures=failures, seconds=self._seconds)

    def _abandoned(self, call: "Call") -> None:
        if self._test_call is call:
            self._test_call = None


class Call:
    """One call through a circuit: `completed`, `failed` or `abandoned` ends it, optionally after `responded`."""

    __slots__ = ("_circuit", "request")

    def __init__(self, circuit: CircuitBreaker, request: Hashable) -> None:
        self._circuit = circuit
        self.request = object() if request is None else request

    def responded(self) -> None:
        """Note that the server is available: it has begun to answer, or has refused the request."""
        self._circuit._responded(self)

    def completed(self) -> None:
        """Note that the answer is complete."""
        self._circuit._completed(self)

    def failed(self) -> None:
        """Note that the server failed."""
        self._circuit._failed(self)

    def abandoned(self) -> None:
        """Note that the call ended without a result of the server; the state of the circuit does not change."""
        self._circuit._abandoned(self)

"""One place that serves a model, with what is known of how it does."""

import contextlib
import math
from collections.abc import AsyncIterator, Hashable

from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, NotFound, Unavailable, UpstreamRejected

from generator.ports import Model
from generator.routing.circuit_breaker import Call, CircuitBreaker
from generator.routing.concurrency import ConcurrencyLimiter

_TIMED_OUT = 408
_SERVER_FAULT = 500


class Deployment:
    """A model on a server, limited and watched.

    Args:
        name: Of server and model, for the log.
        model: Who answers.
        slots: How many answers at once.
        circuit: Whether it is let alone.
        first_token: Seconds until a streamed answer has to begin.

    Attributes:
        name: As above.
        model: As above.
        slots: As above; `ConcurrencyLimiter.busy` and `ConcurrencyLimiter.waiting` tell its load.
        circuit: As above; `CircuitBreaker.state` tells its health.
        first_token: As above.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        slots: ConcurrencyLimiter,
        circuit: CircuitBreaker,
        first_token: float = math.inf,
    ) -> None:
        self.name = name
        self.model = model
        self.slots = slots
        self.circuit = circuit
        self.first_token = first_token

    @property
    def admits(self) -> bool:
        """A request may go there now, perhaps to wait."""
        return self.circuit.admits and not self.slots.full

    @contextlib.asynccontextmanager
    async def visit(self, deadline: Deadline, request: Hashable = None) -> AsyncIterator[Call]:
        """Holds a slot, and tells the circuit how the block ended.

        Args:
            deadline: Of the wait for a slot.
            request: What this is a try of; None: of a request of its own.

        Raises:
            RateLimited, DeadlineExceeded: As `ConcurrencyLimiter.taken`.
            Unavailable: The circuit is open.
        """
        async with self.slots.taken(deadline):
            call = self.circuit.call(request)
            try:
                yield call
            except CausewayError as error:
                if is_fault(error):
                    call.failed()
                else:
                    call.answering()
                    call.left()
                raise
            except BaseException:  # the caller left, or a defect of ours
                call.left()
                raise
            else:
                call.completed()


def is_fault(error: CausewayError) -> bool:
    """The server is to blame: unreachable, too slow, broken, without the model; not what it refuses for reasons."""
    if isinstance(error, UpstreamRejected):
        return error.status >= _SERVER_FAULT or error.status == _TIMED_OUT
    return isinstance(error, Unavailable | DeadlineExceeded | NotFound)

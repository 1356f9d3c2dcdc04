"""One deployment of a model, with its load and health."""

import contextlib
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass

from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable, UpstreamRejected

from generator.ports import Model
from generator.routing.circuit_breaker import Call, CircuitBreaker
from generator.routing.concurrency import ConcurrencyLimiter

_TIMED_OUT = 408
_SERVER_FAULT = 500


@dataclass(frozen=True, eq=False)
class Deployment:
    """A model on a server, with a concurrency limit and a circuit breaker.

    Attributes:
        name: The names of the server and the model, for the log.
        model: The model.
        slots: The concurrency limit; `ConcurrencyLimiter.busy` and `ConcurrencyLimiter.waiting` are its load.
        circuit: The circuit breaker; `CircuitBreaker.state` is its health.
        first_token_timeout: The maximum number of seconds until a streamed answer begins.
    """

    name: str
    model: Model
    slots: ConcurrencyLimiter
    circuit: CircuitBreaker
    first_token_timeout: float

    @property
    def admits(self) -> bool:
        """Return whether a request may use the deployment now or after a wait in the queue."""
        return self.circuit.admits and not self.slots.full

    @contextlib.asynccontextmanager
    async def attempt(self, deadline: Deadline, request: Hashable = None) -> AsyncIterator[Call]:
        """Hold a slot during the block, and report the result of the block to the circuit.

        Args:
            deadline: Until when the attempt may wait for a slot.
            request: Identifies the request that the attempt belongs to; None: a separate request.

        Raises:
            RateLimited, DeadlineExceeded: As in `ConcurrencyLimiter.acquire`.
            Unavailable: The circuit admits no call.
        """
        async with self.slots.acquire(deadline):
            call = self.circuit.call(request)
            try:
                yield call
            except CausewayError as error:
                if is_fault(error):
                    call.failed()
                else:
                    call.responded()
                    call.abandoned()
                raise
            except BaseException:  # the caller has disconnected, or this code has a defect
                call.abandoned()
                raise
            else:
                call.completed()


def is_fault(error: CausewayError) -> bool:
    """Return whether the error is a fault of the server: unreachable, too slow or broken.

    A refusal of the request is not a fault.
    """
    if isinstance(error, UpstreamRejected):
        return error.status >= _SERVER_FAULT or error.status == _TIMED_OUT
    return isinstance(error, Unavailable | DeadlineExceeded)

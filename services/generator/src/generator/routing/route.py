"""A model under its public name, answered by one of its deployments."""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator, Sequence

from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded

from generator.domain import Event, EventKind, Prompt
from generator.ports import TokenCounter
from generator.routing.attempts import Attempts, Retries, Target
from generator.routing.circuit_breaker import State
from generator.routing.metrics import Answering
from generator.routing.span_attributes import parameters_of

UNBOUNDED = Deadline(math.inf)
_TEXT, _FINISH = EventKind.TEXT, EventKind.FINISH


class Route:
    """A `generator.ports.Model` with several deployments.

    Args:
        name: The public name.
        targets: The deployments, at least one.
        tokens: The token counter for all deployments.
        window: The context window; None: the smallest one of the deployments.
        retries: The bounds of retries.
        dice: Chooses among equal targets, and varies the pauses.
        takes_pictures: The model accepts pictures among the parts of a message.
        calls_tools: The model calls the tools that a request offers.
    """

    def __init__(
        self,
        name: str,
        targets: Sequence[Target],
        *,
        tokens: TokenCounter,
        window: int | None = None,
        retries: Retries | None = None,
        dice: random.Random | None = None,
        takes_pictures: bool = False,
        calls_tools: bool = False,
    ) -> None:
        self.name = name
        self.owned_by = targets[0].deployment.model.owned_by
        # The deployment that will answer is not known in advance.
        self.only_quotes = any(target.deployment.model.only_quotes for target in targets)
        self.takes_pictures = takes_pictures
        self.calls_tools = calls_tools
        self.targets = tuple(targets)
        self.tokens = tokens
        self._window = window
        self._retries = retries or Retries()
        self._dice = dice or random.Random()  # noqa: S311  # a predictable choice is no risk

    async def generate(self, prompt: Prompt, deadline: Deadline = UNBOUNDED) -> AsyncGenerator[Event, None]:
        """Yield the answer of one deployment; another one may take over until the first event with content.

        Raises:
            RateLimited: All deployments are busy and their queues full.
            CausewayError: See the port.
        """
        parameters = parameters_of(prompt)
        streamed = parameters.stream is True
        # A question of a user can cause several model requests; all are in one trace.
        request = telemetry.current_trace_id() or object()
        tries = Attempts(self.name, self.targets, self._retries, deadline, self._dice)
        while True:
            deployment, pause = tries.next()
            if pause:
                await asyncio.sleep(pause)
            admitted = spoke = False
            try:
                async with deployment.visit(deadline, request) as call:
                    admitted = True
                    with Answering(self.name, deployment, parameters, prompt) as answering:
                        async with contextlib.aclosing(deployment.model.generate(prompt)) as events:
                            first = await _first(events, deployment.first_token if streamed else math.inf)
                            call.answering()
                            answering.began(first)
                            spoke = True
                            for event in first:
                                yield event
                            async for event in events:
                                # This is the hot path: a piece of text costs one check.
                                kind = event.kind
                                if kind is not _TEXT and (kind is _FINISH or event.usage is not None):
                                    answering.heard(event)
                                yield event
                return
            except CausewayError as error:
                if spoke or not tries.goes_on(deployment, error, admitted=admitted):
                    raise

    async def context_window(self) -> int:
        """Return the configured window, else the smallest known one; 0 if none is known."""
        if self._window is not None:
            return self._window
        windows = await asyncio.gather(*(each.deployment.model.context_window() for each in self.targets))
        return min(filter(None, windows), default=0)

    async def created(self) -> int:
        """Return the first known time of a deployment; 0 if no deployment knows it."""
        created = await asyncio.gather(*(each.deployment.model.created() for each in self.targets))
        return next(filter(None, created), 0)

    async def ready(self) -> bool:
        """Return whether a deployment can be reached and has a closed circuit."""
        closed = [each.deployment for each in self.targets if each.deployment.circuit.state is not State.OPEN]
        return any(await asyncio.gather(*(deployment.model.ready() for deployment in closed)))

    async def aclose(self) -> None:
        """Close the models of all deployments."""
        for target in self.targets:
            await target.deployment.model.aclose()


async def _first(events: AsyncGenerator[Event, None], patience: float) -> list[Event]:
    """Return the events up to the first one with content; the caller can still discard a START alone.

    Raises:
        DeadlineExceeded: The first event with content did not arrive in time.
    """
    read = []
    try:
        async with asyncio.timeout(None if math.isinf(patience) else patience):
            async for event in events:
                read.append(event)
                if event.kind is not EventKind.START:
                    break
    except TimeoutError as error:
        raise DeadlineExceeded(f"The model server did not begin to answer within {patience:g} s.") from error
    return read

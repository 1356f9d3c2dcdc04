"""A model under its public name, with several deployments."""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncGenerator, Sequence

from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError

from generator.domain import Event, EventKind, Prompt
from generator.ports import TokenCounter, too_slow
from generator.routing.attempts import Attempts, Retries, Target
from generator.routing.circuit_breaker import State
from generator.routing.metrics import Recorder
from generator.routing.span_attributes import parameters_of

UNBOUNDED = Deadline(math.inf)
_TEXT, _FINISH = EventKind.TEXT, EventKind.FINISH


class Route:
    """A `generator.ports.Model` with several deployments.

    Args:
        name: The public name.
        targets: The deployments, at least one.
        tokens: The token counter for all deployments.
        window: The context window in tokens; None: the smallest one of the deployments.
        retries: The limits on retries.
        rng: Selects among equally good targets, and adds jitter to the pauses.
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
        rng: random.Random | None = None,
        takes_pictures: bool = False,
        calls_tools: bool = False,
    ) -> None:
        self.name = name
        self.owned_by = targets[0].deployment.model.owned_by
        # True if any deployment only quotes, because any of them may answer.
        self.only_quotes = any(target.deployment.model.only_quotes for target in targets)
        self.takes_pictures = takes_pictures
        self.calls_tools = calls_tools
        self.targets = tuple(targets)
        self.tokens = tokens
        self._window = window
        self._retries = retries or Retries()
        self._rng = rng or random.Random()  # noqa: S311  # a predictable choice is no risk

    async def generate(self, prompt: Prompt, deadline: Deadline = UNBOUNDED) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer of one deployment.

        If a deployment fails before its first event with content, try another one.

        Raises:
            RateLimited: All deployments are busy, and their queues are full or too slow for the deadline.
            CausewayError: See `generator.ports.Model.generate`.
        """
        parameters = parameters_of(prompt)
        streamed = parameters.stream is True
        # A user's question can cause several model requests, which share one trace.
        request = telemetry.current_trace_id() or object()
        attempts = Attempts(self.name, self.targets, self._retries, deadline, self._rng)
        while True:
            deployment, pause = attempts.next()
            if pause:
                await asyncio.sleep(pause)
            admitted = started = False
            try:
                async with deployment.attempt(deadline, request) as call:
                    admitted = True
                    with Recorder(self.name, deployment, parameters, prompt) as recorder:
                        async with contextlib.aclosing(deployment.model.generate(prompt)) as events:
                            first = await _read_first_events(
                                events, deployment.first_token_timeout if streamed else math.inf
                            )
                            call.responded()
                            recorder.record_start(first)
                            started = True
                            for event in first:
                                yield event
                            async for event in events:
                                # This loop runs for each token, so it makes only one check for a piece of text.
                                kind = event.kind
                                if kind is not _TEXT and (kind is _FINISH or event.usage is not None):
                                    recorder.record_event(event)
                                yield event
                return
            except CausewayError as error:
                if started or not attempts.note_failure(deployment, error, admitted=admitted):
                    raise

    async def context_window(self) -> int:
        """Return the configured window, else the smallest window of the deployments; 0 if unknown."""
        if self._window is not None:
            return self._window
        windows = await asyncio.gather(*(target.deployment.model.context_window() for target in self.targets))
        return min(filter(None, windows), default=0)

    async def created(self) -> int:
        """Return the creation time of the first deployment that reports it; 0 if unknown."""
        created = await asyncio.gather(*(target.deployment.model.created() for target in self.targets))
        return next(filter(None, created), 0)

    async def ready(self) -> bool:
        """Return whether a deployment can be reached and its circuit is not open."""
        usable = [target.deployment for target in self.targets if target.deployment.circuit.state is not State.OPEN]
        return any(await asyncio.gather(*(deployment.model.ready() for deployment in usable)))

    async def aclose(self) -> None:
        """Close the models of all deployments."""
        for target in self.targets:
            await target.deployment.model.aclose()


async def _read_first_events(events: AsyncGenerator[Event, None], seconds: float) -> list[Event]:
    """Return the events up to the first event with content.

    Raises:
        DeadlineExceeded: The first event with content did not arrive in time.
    """
    first_events = []
    try:
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            async for event in events:
                first_events.append(event)
                if event.kind is not EventKind.START:
                    break
    except TimeoutError as error:
        raise too_slow(seconds, "did not begin to answer") from error
    return first_events

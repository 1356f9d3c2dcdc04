"""Admission control: a slot for each answer, a short queue, and a fast refusal of the rest.

An accepted request must be answered nearly as fast as without load. So the queue is at most a quarter of the slots:
by Little's law a request waits in it for a quarter of an answer's duration, on average. After a burst slots become
free in bursts, too. So a request is refused if its expected wait, by the ages of the running answers, is much
longer.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable
from itertools import count, islice

from servicekit import metrics
from servicekit.errors import Unavailable
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.routing.route import AdmissionClass
from gateway.server.metrics import Metrics
from gateway.server.middleware import HEALTH
from gateway.server.request_state import state_of

_QUEUE_SHARE = 0.25
_BATCH_SHARE = 0.75
# The longest expected wait that is admitted, as a share of an answer's duration.
_WAIT_SHARE = 0.4
_WEIGHT = 0.1
# The header with the time that the client waits for the whole answer, from Envoy or from a client.
_TIMEOUT_MS = b"x-envoy-expected-rq-timeout-ms"

_refused = metrics.counter(
    __name__,
    "causeway.overload.refusals",
    "{request}",
    "Requests that were refused for lack of capacity, by reason.",
    [{"causeway.reason": reason} for reason in ("limit", "batch", "deadline", "queue", "wait")],
)


class Admission:
    """Refuses requests beyond the gateway's capacity with 503; health checks are always admitted.

    All requests together have a limit. Those that call a model or upload documents need a slot. Interactive ones
    may wait for one in a short queue; batch ones get one only while a quarter of all slots are free.

    Args:
        app: The inner application.
        measured: The metrics of the slots.
        limit: The maximum number of concurrent requests.
        places: The number of slots.
        wait: The maximum number of seconds in the queue.
        timeout: The time limit of an answer, in seconds, unless a client sets less.
    """

    def __init__(
        self,
        app: ASGIApp,
        measured: Metrics,
        *,
        limit: int,
        places: int,
        wait: float,
        timeout: float,
    ) -> None:
        self._app = app
        self._limit = limit
        self._wait = wait
        self._timeout = timeout
        self._all = 0
        self._places = places
        self._queue = math.ceil(places * _QUEUE_SHARE)
        self._for_batch = max(1, int(places * _BATCH_SHARE))
        self._running = 0
        self._numbers = count()
        self._begun: dict[int, float] = {}  # start of each answer, the oldest first
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._seconds = 0.0  # mean duration of an answer
        measured.answers.set_function(lambda: self._running)
        measured.waiting.set_function(lambda: len(self._waiting))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        if self._all >= self._limit:
            raise _refusal("limit", "The gateway is at its limit of concurrent requests.")
        self._all += 1
        try:
            kind = self._class(scope)
            if kind is None:
                await self._app(scope, receive, send)
            else:
                await self._take(kind, scope)
                await self._serve(kind, scope, receive, send)
        finally:
            self._all -= 1

    async def _serve(self, kind: AdmissionClass, scope: Scope, receive: Receive, send: Send) -> None:
        number, begin = next(self._numbers), time.perf_counter()
        self._begun[number] = begin
        try:
            await self._app(scope, receive, send)
        finally:
            del self._begun[number]
            self._give_back()
            if kind is AdmissionClass.INTERACTIVE and state_of(scope).done is not None:
                seconds = time.perf_counter() - begin
                self._seconds += (seconds - self._seconds) * (_WEIGHT if self._seconds else 1.0)

    def _class(self, scope: Scope) -> AdmissionClass | None:
        """Return the class of the request; None if it needs no slot."""
        state = state_of(scope)
        kind = None if state.route is None else state.route.admission
        if kind is AdmissionClass.INTERACTIVE and (
            state.frontend.batch or (b"x-priority", b"batch") in scope["headers"]
        ):
            return AdmissionClass.BATCH
        return kind

    async def _take(self, kind: AdmissionClass, scope: Scope) -> None:
        """Take a slot, immediately or after a short wait.

        Raises:
            Unavailable: No slot becomes free in time.
        """
        if kind is AdmissionClass.BATCH:
            if self._waiting or self._running >= self._for_batch:
                raise _refusal("batch", "The gateway has no room for batch requests now.", self._seconds)
            self._running += 1
            return
        if self._running < self._places and not self._waiting:
            self._running += 1
            return
        # The last answers determine the expected duration. While a slot is free they refuse no request, so that the
        # gateway recovers from a slow period.
        patience = max(0.0, _deadline(scope, self._timeout) - self._seconds)
        now = time.perf_counter()
        ages = (now - begun for begun in self._begun.values())
        expected = expected_wait(len(self._waiting), ages, self._seconds, self._places)
        if expected > patience:
            raise _refusal("deadline", "The answer would take longer than the client waits.", expected)
        if len(self._waiting) >= self._queue or expected > min(self._wait, self._seconds * _WAIT_SHARE):
            raise _refusal("queue", "The gateway is at its limit of concurrent answers.", expected)
        await self._queued(min(self._wait, patience))

    async def _queued(self, seconds: float) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(seconds):
                await place
        except BaseException as error:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not place.cancelled():
                self._give_back()  # the slot became free at the last moment
            if isinstance(error, TimeoutError):
                raise _refusal("wait", "No slot became free in time.") from None
            raise

    def _give_back(self) -> None:
        """Pass a slot to the request that has waited longest."""
        for place in self._waiting:
            if not place.done():  # else the request has just stopped to wait
                self._waiting.remove(place)
                place.set_result(None)
                return
        self._running -= 1


def expected_wait(ahead: int, ages: Iterable[float], seconds: float, places: int) -> float:
    """Return the expected seconds until a slot becomes free for a request behind so many others.

    Args:
        ahead: The number of waiting requests.
        ages: The ages of the running answers in seconds, the oldest first.
        seconds: The duration of an answer.
        places: The number of slots.
    """
    by_pace = (ahead + 1) * seconds / places
    return max(by_pace, seconds - next(islice(ages, ahead, None), seconds))


def _deadline(scope: Scope, timeout: float) -> float:
    """Return the seconds that a client waits for its answer."""
    value = next((value for name, value in scope["headers"] if name == _TIMEOUT_MS), b"")
    return min(timeout, int(value) / 1000) if value.isdigit() and len(value) < 10 else timeout


def _refusal(reason: str, message: str, retry_after: float = 1.0) -> Unavailable:
    _refused.add(1, {"causeway.reason": reason})
    return Unavailable(message, retry_after=max(1.0, retry_after))

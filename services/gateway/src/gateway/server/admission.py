"""What the gateway takes on at once: a place for each answer, a short queue, and a quick refusal of the rest.

Whatever is accepted must be answered nearly as fast as if there were no crowd. So the queue is no longer than a
quarter of the places: by Little's law a request waits in it for a quarter of what an answer takes, on average.
After a burst places come free in bursts, too: so nobody is let in either who would wait for much longer than that,
by the ages of the answers that take the places.
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
# Of what an answer takes: the longest wait that anybody is let in for.
_WAIT_SHARE = 0.4
_WEIGHT = 0.1
# How long the client waits for the whole answer, as Envoy says it and clients may, too.
_TIMEOUT_MS = b"x-envoy-expected-rq-timeout-ms"

_refused = metrics.counter(
    __name__,
    "causeway.overload.refusals",
    "{request}",
    "Requests that were refused for want of capacity, by reason.",
    [{"causeway.reason": reason} for reason in ("limit", "batch", "deadline", "queue", "wait")],
)


class Admission:
    """Refuses what is more than the gateway takes at once, with 503; health checks are always let in.

    All requests together have a limit. Those that ask a model or bring documents take one of the places:
    interactive ones may wait for one in a short queue, batch ones take one only while a quarter of all are free.

    Args:
        app: What is below.
        measured: Shows how many places are taken.
        limit: Most requests at once.
        places: Most answers at once.
        wait: Most seconds in the queue.
        timeout: Seconds that an answer may take, where a client does not say that it waits for less.
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
        self._begun: dict[int, float] = {}  # when each answer was begun, the oldest first
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._seconds = 0.0  # of an answer, on average
        measured.answers.set_function(lambda: self._running)
        measured.waiting.set_function(lambda: len(self._waiting))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        if self._all >= self._limit:
            raise _refusal("limit", "The gateway is at its limit of requests at once.")
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
        """None: it takes no place."""
        state = state_of(scope)
        kind = None if state.route is None else state.route.admission
        if kind is AdmissionClass.INTERACTIVE and (
            state.frontend.batch or (b"x-priority", b"batch") in scope["headers"]
        ):
            return AdmissionClass.BATCH
        return kind

    async def _take(self, kind: AdmissionClass, scope: Scope) -> None:
        """Takes a place, at once or after a short wait.

        Raises:
            Unavailable: There is none, or none in time.
        """
        if kind is AdmissionClass.BATCH:
            if self._waiting or self._running >= self._for_batch:
                raise _refusal("batch", "The gateway has no room for batch requests now.", self._seconds)
            self._running += 1
            return
        if self._running < self._places and not self._waiting:
            self._running += 1
            return
        # How long it will take is judged by the last answers. Where a place is free nobody is refused for them, so
        # that a slow time is forgotten when it is over.
        patience = max(0.0, _deadline(scope, self._timeout) - self._seconds)
        now = time.perf_counter()
        ages = (now - begun for begun in self._begun.values())
        expected = expected_wait(len(self._waiting), ages, self._seconds, self._places)
        if expected > patience:
            raise _refusal("deadline", "The answer would come later than the client waits.", expected)
        if len(self._waiting) >= self._queue or expected > min(self._wait, self._seconds * _WAIT_SHARE):
            raise _refusal("queue", "The gateway is at its limit of answers at once.", expected)
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
                self._give_back()  # it came at the last moment
            if isinstance(error, TimeoutError):
                raise _refusal("wait", "No place came free in time.") from None
            raise

    def _give_back(self) -> None:
        """Hands a place on to who has waited for longest."""
        for place in self._waiting:
            if not place.done():  # else it has just been given up
                self._waiting.remove(place)
                place.set_result(None)
                return
        self._running -= 1


def expected_wait(ahead: int, ages: Iterable[float], seconds: float, places: int) -> float:
    """Seconds until a place comes free for who would wait behind so many others.

    Args:
        ahead: How many wait already.
        ages: For how long the answers have been given that take the places, the oldest first; seconds.
        seconds: How long an answer takes.
        places: How many are given at once.
    """
    by_pace = (ahead + 1) * seconds / places
    return max(by_pace, seconds - next(islice(ages, ahead, None), seconds))


def _deadline(scope: Scope, timeout: float) -> float:
    """Seconds that a client waits for its answer."""
    value = next((value for name, value in scope["headers"] if name == _TIMEOUT_MS), b"")
    return min(timeout, int(value) / 1000) if value.isdigit() and len(value) < 10 else timeout


def _refusal(reason: str, message: str, retry_after: float = 1.0) -> Unavailable:
    _refused.add(1, {"causeway.reason": reason})
    return Unavailable(message, retry_after=max(1.0, retry_after))

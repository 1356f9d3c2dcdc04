"""Admission control: each answer needs a slot, a few requests wait for a slot, and the gateway refuses the others.

The gateway must answer an admitted request nearly as fast as without load. Therefore the queue is limited to a
quarter of the number of slots. By Little's law, the mean wait is then at most a quarter of an answer's duration.
After a burst of requests, slots also become free in bursts. Therefore the gateway estimates the wait from the ages
of the running answers, and refuses a request whose expected wait is too long.
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
# The maximum expected wait of an admitted request, as a share of an answer's duration.
_WAIT_SHARE = 0.4
_MEAN_WEIGHT = 0.1
# Envoy or a client sets this header to the time for which the client waits for the whole answer.
_TIMEOUT_MS = b"x-envoy-expected-rq-timeout-ms"

_refused = metrics.counter(
    __name__,
    "causeway.overload.refusals",
    "{request}",
    "Requests that were refused for lack of capacity, by reason.",
    [{"causeway.reason": reason} for reason in ("limit", "batch", "deadline", "queue", "wait")],
)


class Admission:
    """Refuses requests beyond the gateway's capacity with 503. Health checks are always admitted.

    The number of concurrent requests is limited. Requests that call a model or upload documents also need a slot.
    Interactive requests may wait in a short queue. Batch requests get a slot only while the queue is empty and at
    least a quarter of the slots is free.

    Args:
        app: The inner application.
        gateway_metrics: The metrics that report the used slots and the length of the queue.
        limit: The maximum number of concurrent requests.
        slots: The number of slots.
        wait: The maximum number of seconds in the queue.
        timeout: The time limit of an answer, in seconds. A client may set a shorter time limit in a header.
    """

    def __init__(
        self,
        app: ASGIApp,
        gateway_metrics: Metrics,
        *,
        limit: int,
        slots: int,
        wait: float,
        timeout: float,
    ) -> None:
        self._app = app
        self._limit = limit
        self._wait = wait
        self._timeout = timeout
        self._concurrent = 0
        self._slots = slots
        self._queue_size = math.ceil(slots * _QUEUE_SHARE)
        self._batch_slots = max(1, int(slots * _BATCH_SHARE))
        self._running = 0
        self._numbers = count()
        self._start_times: dict[int, float] = {}  # start of each answer, the oldest first
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._mean_seconds = 0.0  # mean duration of an answer
        gateway_metrics.answers.set_function(lambda: self._running)
        gateway_metrics.waiting.set_function(lambda: len(self._waiting))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            Unavailable: The gateway has no capacity for the request.
        """
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        if self._concurrent >= self._limit:
            raise _refusal("limit", "The gateway is at its limit of concurrent requests.")
        self._concurrent += 1
        try:
            kind = self._class(scope)
            if kind is None:
                await self._app(scope, receive, send)
            else:
                await self._acquire(kind, scope)
                await self._serve(kind, scope, receive, send)
        finally:
            self._concurrent -= 1

    async def _serve(self, kind: AdmissionClass, scope: Scope, receive: Receive, send: Send) -> None:
        number, begin = next(self._numbers), time.perf_counter()
        self._start_times[number] = begin
        try:
            await self._app(scope, receive, send)
        finally:
            del self._start_times[number]
            self._release()
            state = state_of(scope)
            # An accepted background response takes milliseconds, because the answer is generated later.
            if kind is AdmissionClass.INTERACTIVE and state.done is not None and not state.recorded_later:
                seconds = time.perf_counter() - begin
                self._mean_seconds += (seconds - self._mean_seconds) * (_MEAN_WEIGHT if self._mean_seconds else 1.0)

    def _class(self, scope: Scope) -> AdmissionClass | None:
        """Return the admission class of a request. None if the request needs no slot."""
        state = state_of(scope)
        kind = None if state.route is None else state.route.admission
        if kind is AdmissionClass.INTERACTIVE and (
            state.frontend.is_batch or (b"x-priority", b"batch") in scope["headers"]
        ):
            return AdmissionClass.BATCH
        return kind

    async def _acquire(self, kind: AdmissionClass, scope: Scope) -> None:
        """Acquire a slot, immediately or after a short wait.

        Raises:
            Unavailable: No slot becomes free in time.
        """
        if kind is AdmissionClass.BATCH:
            if self._waiting or self._running >= self._batch_slots:
                raise _refusal(
                    "batch", "The gateway has no free slot for batch requests. Try again later.", self._mean_seconds
                )
            self._running += 1
            return
        if self._running < self._slots and not self._waiting:
            self._running += 1
            return
        # The durations of past answers matter only while all slots are occupied. Otherwise the gateway could not
        # recover from a slow period.
        max_wait = max(0.0, _deadline(scope, self._timeout) - self._mean_seconds)
        now = time.perf_counter()
        ages = (now - begun for begun in self._start_times.values())
        expected = expected_wait(len(self._waiting), ages, self._mean_seconds, self._slots)
        if expected > max_wait:
            raise _refusal("deadline", "The answer would take longer than the client waits.", expected)
        if len(self._waiting) >= self._queue_size or expected > min(self._wait, self._mean_seconds * _WAIT_SHARE):
            raise _refusal("queue", "The gateway is at its limit of concurrent answers.", expected)
        await self._wait_in_queue(min(self._wait, max_wait))

    async def _wait_in_queue(self, seconds: float) -> None:
        slot = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            async with asyncio.timeout(seconds):
                await slot
        except BaseException as error:
            if slot in self._waiting:
                self._waiting.remove(slot)
            elif not slot.cancelled():
                self._release()  # the slot became free at the last moment
            if isinstance(error, TimeoutError):
                raise _refusal("wait", "No slot became free in time.") from None
            raise

    def _release(self) -> None:
        """Give the slot to the request that has waited longest, or free the slot."""
        for slot in self._waiting:
            if not slot.done():  # a request that has just timed out is done
                self._waiting.remove(slot)
                slot.set_result(None)
                return
        self._running -= 1


def expected_wait(ahead: int, ages: Iterable[float], seconds: float, slots: int) -> float:
    """Return the expected seconds until a waiting request gets a slot.

    Args:
        ahead: The number of requests that wait already.
        ages: The ages of the running answers in seconds, the oldest first.
        seconds: The mean duration of an answer, in seconds.
        slots: The number of slots.
    """
    mean_wait = (ahead + 1) * seconds / slots
    return max(mean_wait, seconds - next(islice(ages, ahead, None), seconds))


def _deadline(scope: Scope, timeout: float) -> float:
    """Return the time limit of the answer in seconds: that of the client's header, but at most ``timeout``."""
    value = next((value for name, value in scope["headers"] if name == _TIMEOUT_MS), b"")
    return min(timeout, int(value) / 1000) if value.isdigit() and len(value) < 10 else timeout


def _refusal(reason: str, message: str, retry_after: float = 1.0) -> Unavailable:
    _refused.add(1, {"causeway.reason": reason})
    return Unavailable(message, retry_after=max(1.0, retry_after))

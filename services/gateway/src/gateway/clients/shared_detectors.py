"""Prepare the detectors of policies that the gateway can run with the same code as the guardrails service."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import structlog
from detection.moderation.thread_pool import ThreadPool
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.tasks import cancel_and_wait

from gateway.clients.guardrails import GrpcGuardrails
from gateway.domain import Detector

if TYPE_CHECKING:
    from causeway.guardrails.v1 import guardrails_pb2

    from gateway.clients.local_detectors import LocalDetectors, LocalLibrary

_log = structlog.get_logger(__name__)
_LIST_SECONDS = 5.0
_MAX_SETS = 64


class SharedDetectors:
    """Sets of detectors that this process can run.

    After the first request with a policy, a background task lists the detectors of the service periodically.
    Another task compiles the requested sets in a thread. Requests do not wait: the service judges until a set is
    ready. The service also runs all detectors that a request names, because callers must not fill the gateway's
    memory with patterns.

    Args:
        service: The guardrails service.
        workers: The threads that compile detectors and judge long pieces.
        interval: Seconds between two requests for the service's list of detectors.
        age: Seconds for which a list is valid.
    """

    def __init__(
        self, service: GrpcGuardrails, workers: ThreadPool, *, interval: float = 5.0, age: float = 30.0
    ) -> None:
        self._service = service
        self._workers = workers
        self._interval = interval
        self._age = age
        self._policy_requested = asyncio.Event()
        self._queue: asyncio.Queue[tuple[Detector, ...]] = asyncio.Queue(_MAX_SETS)
        self._library: LocalLibrary | None = None
        self._listed_at = -float("inf")
        self._compiled: dict[tuple[Detector, ...], LocalDetectors | None] = {}
        self._problem = ""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def ready(self, detectors: Sequence[Detector]) -> "LocalDetectors | None":
        """Return the detectors if this process can run all of them now. Otherwise return None and prepare them.

        The service always runs a set that contains a detector of the request. This process does not prepare it.
        """
        for detector in detectors:
            if detector.requested:
                return None
        policy = tuple(detectors)
        if policy in self._compiled:
            return self._compiled[policy] if time.monotonic() - self._listed_at <= self._age else None
        self._policy_requested.set()
        if self._library is not None and not self._queue.full():
            if len(self._compiled) >= _MAX_SETS:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[policy] = None
            self._queue.put_nowait(policy)
        return None

    async def __aenter__(self) -> Self:
        self._tasks = (asyncio.create_task(self._list()), asyncio.create_task(self._compile()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await cancel_and_wait(*self._tasks)

    async def _list(self) -> None:
        await self._policy_requested.wait()
        while True:
            await self._refresh()
            await asyncio.sleep(self._interval)

    async def _refresh(self) -> None:
        started = time.monotonic()
        try:
            listed = await self._service.list_detectors(Deadline.after(_LIST_SECONDS))
            library = await self._workers.run(False, _library, listed, self._workers)
        except CausewayError as error:
            self._report("cannot list the detectors of the guardrails service", error)
            return
        except Exception as error:  # for example an unreadable file; the next attempt may succeed
            self._report("the gateway cannot run detectors itself", error)
            return
        self._problem = ""
        if not library.has_same_detectors(self._library):
            self._library, self._compiled = library, {}
            _log.info("the gateway runs detectors of policies itself", detectors=sorted(library.detector_ids))
        self._listed_at = started

    def _report(self, event: str, error: Exception) -> None:
        """Log a problem that differs from the previous problem."""
        problem = str(error)
        if problem != self._problem:
            _log.warning(event, error=problem, exc_info=None if isinstance(error, CausewayError) else error)
        self._problem = problem

    async def _compile(self) -> None:
        while True:
            policy = await self._queue.get()
            compiled, library = self._compiled, self._library
            if library is None:
                continue
            try:
                detectors = await self._workers.run(False, library.build, policy)
            except Exception:  # the service judges for this policy, and the task continues with the next policy
                _log.exception("cannot compile the detectors of a policy; the guardrails service runs them")
                continue
            if policy in compiled:  # false if newer policies have displaced this policy
                compiled[policy] = detectors


def _library(listed: "guardrails_pb2.ListDetectorsResponse", workers: ThreadPool) -> "LocalLibrary":
    from gateway.clients.local_detectors import (
        LocalLibrary,
    )  # imported only when needed, because it loads large tables

    return LocalLibrary(listed, workers)

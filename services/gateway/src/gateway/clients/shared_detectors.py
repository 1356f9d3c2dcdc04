"""Keeps detectors ready that the gateway can run itself, because the guardrails service runs the same ones."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog
from detection.moderation.thread_pool import ThreadPool
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.tasks import ended

from gateway.clients.guardrails import GrpcGuardrails
from gateway.domain import Detector

if TYPE_CHECKING:
    from causeway.guardrails.v1 import guardrails_pb2

    from gateway.clients.local_detectors import LocalDetectors, LocalLibrary

_log = structlog.get_logger(__name__)
_SECONDS = 5.0
_MOST_SETS = 64


class SharedDetectors:
    """Sets of detectors that this process can run as the service does.

    A background task asks the service for its detectors, repeatedly once they are wanted. Another task makes the
    wanted sets, in a thread. A request never waits for that: until a set is ready, the service judges. Detectors
    that a request names stay with the service: callers must not fill the memory of the gateway with patterns.

    Args:
        service: The service.
        workers: The threads that make detectors and judge long pieces.
        interval: Seconds between two calls of the service.
        age: Seconds for which an answer of the service counts.
    """

    def __init__(
        self, service: GrpcGuardrails, workers: ThreadPool, *, interval: float = 5.0, age: float = 30.0
    ) -> None:
        self._service = service
        self._workers = workers
        self._interval = interval
        self._age = age
        self._wanted = asyncio.Event()
        self._queue: asyncio.Queue[tuple[Detector, ...]] = asyncio.Queue(_MOST_SETS)
        self._library: LocalLibrary | None = None
        self._listed = -float("inf")
        self._made: dict[tuple[Detector, ...], LocalDetectors | None] = {}
        self._problem = ""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def ready(self, detectors: Sequence[Detector]) -> "LocalDetectors | None":
        """Return the detectors if this process can run all of them now; else None, and prepare them."""
        for each in detectors:
            if each.requested:
                return None
        wanted = tuple(detectors)
        if wanted in self._made:
            return self._made[wanted] if time.monotonic() - self._listed <= self._age else None
        self._wanted.set()
        if self._library is not None and not self._queue.full():
            if len(self._made) >= _MOST_SETS:
                del self._made[next(iter(self._made))]
            self._made[wanted] = None
            self._queue.put_nowait(wanted)
        return None

    async def __aenter__(self) -> Self:
        self._tasks = (asyncio.create_task(self._list()), asyncio.create_task(self._make()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await ended(*self._tasks)

    async def _list(self) -> None:
        await self._wanted.wait()
        while True:
            await self._look()
            await asyncio.sleep(self._interval)

    async def _look(self) -> None:
        asked = time.monotonic()
        try:
            listed = await self._service.listing(Deadline.after(_SECONDS))
            library = await self._workers.run(False, _library, listed, self._workers)
        except CausewayError as error:
            self._tell("the detectors of the guardrails service are unknown", error)
            return
        except Exception as error:  # for example an unreadable file; the next look may succeed
            self._tell("the gateway cannot run detectors itself", error)
            return
        self._problem = ""
        if not library.is_like(self._library):
            self._library, self._made = library, {}
            _log.info("detectors that the gateway runs itself for policies", detectors=sorted(library.names))
        self._listed = asked

    def _tell(self, event: str, error: Exception) -> None:
        """Log a problem unless it is the last one."""
        problem = str(error)
        if problem != self._problem:
            _log.warning(event, error=problem, exc_info=None if isinstance(error, CausewayError) else error)
        self._problem = problem

    async def _make(self) -> None:
        while True:
            wanted = await self._queue.get()
            made, library = self._made, self._library
            if library is None:
                continue
            try:
                detectors = await self._workers.run(False, library.made, wanted)
            except Exception:  # the service judges with these; others can still be made
                _log.exception("the gateway could not make detectors of a policy")
                continue
            if wanted in made:  # else a newer set took its place
                made[wanted] = detectors


def _library(listed: "guardrails_pb2.ListDetectorsResponse", workers: ThreadPool) -> "LocalLibrary":
    from gateway.clients.local_detectors import LocalLibrary  # only if needed: it loads large tables

    return LocalLibrary(listed, workers)

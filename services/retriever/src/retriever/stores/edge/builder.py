"""The parent of the build process (`stores.edge.build_child`): one at a time, bounded, of low priority."""

import asyncio
import contextlib
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from servicekit.errors import InvalidRequest, RateLimited, Unavailable

from retriever.domain.index import IndexSpec
from retriever.stores.edge.build_child import Done, Job, Refused
from retriever.stores.vector_storage import VectorStorage

_log = structlog.get_logger(__name__)

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "retriever.stores.edge.build_child")
_MOST_WAITING = 16
_LAST_WORDS = 4000
_WATCH_SECONDS = 0.1
_answer = msgspec.json.Decoder(Done | Refused)


@dataclass(frozen=True, slots=True)
class Limits:
    """What building one shard or snapshot may cost.

    Attributes:
        seconds: Longest wall and CPU time.
        memory: Most bytes of memory of its own; files that are mapped do not count. Kept on Linux.
    """

    seconds: float = 3600.0
    memory: int = 4 * 1024**3


class Builder:
    """Has shards and snapshots built.

    Args:
        directory: For what is under way; whatever is left in it is removed now.
        check_room: Raises Unavailable where the disk has no room for so many bytes.
        exact_up_to: With more chunks than this a graph is made for searching.
        limits: Of each.
        command: Starts a child.
    """

    def __init__(
        self,
        directory: Path,
        check_room: Callable[[int], None],
        exact_up_to: int,
        limits: Limits,
        command: Sequence[str] = COMMAND,
    ) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)  # a copy that was given up may still be ending in it
        self._directory = directory
        self._check_room = check_room
        self._exact_up_to = exact_up_to
        self._limits = limits
        self._command = command
        self._turn = asyncio.Lock()
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def workplace(self, room: int) -> AsyncIterator[Path]:
        """A directory for one piece of work, when it is its turn; gone with all in it afterwards.

        Args:
            room: Bytes on the disk that it needs.

        Raises:
            RateLimited: Too many others wait.
            Unavailable: The disk has not so much room.
        """
        if self._waiting >= _MOST_WAITING:
            raise RateLimited("Too many indexes are being compacted, written or loaded at once.", retry_after=10)
        self._waiting += 1
        try:
            async with self._turn:
                self._check_room(room)
                directory = self._directory / uuid.uuid4().hex
                directory.mkdir()
                try:
                    yield directory
                finally:
                    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        finally:
            self._waiting -= 1

    async def build(self, kind: str, source: Path, target: Path, spec: IndexSpec, vectors: VectorStorage) -> Done:
        """Has one thing built; see `store.build.Job`. Within a `workplace`.

        Raises:
            InvalidRequest: The snapshot cannot be loaded.
            Unavailable: It failed; the log says why.
        """
        seconds = self._limits.seconds
        job = Job(
            kind,
            str(source.absolute()),
            str(target.absolute()),
            spec,
            vectors,
            self._exact_up_to,
            max(1, round(seconds)),
        )
        child = _started(self._command)
        watching = asyncio.create_task(self._watch(child))
        talking = asyncio.create_task(asyncio.to_thread(child.communicate, msgspec.json.encode(job)))
        why = f"It took longer than {seconds:g} s."
        try:
            async with asyncio.timeout(seconds):
                out, err = await asyncio.shield(talking)
            if child.returncode == 0:
                return _done(_answer.decode(out))
            why = err[-_LAST_WORDS:].decode(errors="replace")
        except (ValueError, RecursionError) as error:
            why = f"It answered nonsense: {error}"
        except TimeoutError:
            pass
        finally:
            watching.cancel()
            _kill(child)
            await asyncio.wait([talking])
        if watching.done() and not watching.cancelled():
            why = f"It took more than {self._limits.memory} bytes of memory."
        _log.error("building failed", kind=kind, index=spec.name, exit_code=child.returncode, why=why)
        raise Unavailable(f"What index '{spec.name}' needs could not be built.", resource=spec.name, retry_after=60)

    async def _watch(self, child: "subprocess.Popen[bytes]") -> None:
        """Ends the child when it has too much memory: by a limit of the kernel's the engine hangs instead."""
        while _memory_of(child.pid) <= self._limits.memory:  # noqa: ASYNC110  # the system tells nobody
            await asyncio.sleep(_WATCH_SECONDS)
        _kill(child)


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # Not by the event loop: uvloop runs Python between fork and exec, and in a process of many threads that ends
    # the child with SIGSEGV now and then. By the loop's thread, which lives as long as the process does: the kernel
    # ends the child together with the thread that has started it.
    return subprocess.Popen(  # noqa: S603  # our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},  # nothing of the service's settings or secrets
    )


def _memory_of(pid: int) -> int:
    """Bytes of memory of a process that is not a file's (proc_pid_status(5)); 0 where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()


def _done(answer: Done | Refused) -> Done:
    if isinstance(answer, Refused):
        raise InvalidRequest(answer.message, field="path")
    return answer

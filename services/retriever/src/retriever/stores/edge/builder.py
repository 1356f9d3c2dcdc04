"""Runs build processes (`stores.edge.build_child`), one at a time, with limits and low priority."""

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
_MAX_WAITING = 16
_MAX_ERROR_BYTES = 4000
_WATCH_SECONDS = 0.1
_result_decoder = msgspec.json.Decoder(Done | Refused)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of building one shard or snapshot.

    Attributes:
        seconds: Maximum wall time and CPU time.
        memory: Maximum bytes of memory, without mapped files. Enforced on Linux only.
    """

    seconds: float = 3600.0
    memory: int = 4 * 1024**3


class Builder:
    """Builds shards and snapshots in child processes.

    Args:
        directory: Directory for running builds. Its content is removed at the start.
        check_free_space: Receives the bytes that a build needs. Raises Unavailable if the disk has too little.
        exact_up_to: Maximum number of chunks of a shard that is built without a graph (HNSW).
        limits: The limits of each build.
        command: The command of the child process.
    """

    def __init__(
        self,
        directory: Path,
        check_free_space: Callable[[int], None],
        exact_up_to: int,
        limits: Limits,
        command: Sequence[str] = COMMAND,
    ) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)  # a thread of an earlier store may still copy files into it
        self._directory = directory
        self._check_free_space = check_free_space
        self._exact_up_to = exact_up_to
        self._limits = limits
        self._command = command
        self._lock = asyncio.Lock()
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def working_directory(self, needed_bytes: int) -> AsyncIterator[Path]:
        """Wait until no other build runs. Yield a temporary directory, which is removed afterwards.

        Args:
            needed_bytes: Bytes of disk space that the build needs.

        Raises:
            RateLimited: Too many builds wait.
            Unavailable: The disk does not have enough space.
        """
        if self._waiting >= _MAX_WAITING:
            raise RateLimited("Too many compactions and snapshots are running or waiting.", retry_after=10)
        self._waiting += 1
        try:
            async with self._lock:
                self._check_free_space(needed_bytes)
                directory = self._directory / uuid.uuid4().hex
                directory.mkdir()
                try:
                    yield directory
                finally:
                    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        finally:
            self._waiting -= 1

    async def build(self, kind: str, source: Path, target: Path, spec: IndexSpec, vectors: VectorStorage) -> Done:
        """Run one `Job` inside a `working_directory`.

        Raises:
            InvalidRequest: The snapshot cannot be loaded.
            Unavailable: The build failed. The log has the reason.
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
        exchange = asyncio.create_task(asyncio.to_thread(child.communicate, msgspec.json.encode(job)))
        why = f"It took longer than {seconds:g} s."
        try:
            async with asyncio.timeout(seconds):
                out, err = await asyncio.shield(exchange)
            if child.returncode == 0:
                return _done(_result_decoder.decode(out))
            why = err[-_MAX_ERROR_BYTES:].decode(errors="replace")
        except (ValueError, RecursionError) as error:
            why = f"It sent a malformed result: {error}"
        except TimeoutError:
            pass
        finally:
            watching.cancel()
            _kill(child)
            await asyncio.wait([exchange])
        if watching.done() and not watching.cancelled():
            why = f"It took more than {self._limits.memory} bytes of memory."
        _log.error("building failed", kind=kind, index=spec.name, exit_code=child.returncode, why=why)
        raise Unavailable(
            f"The files of index '{spec.name}' could not be built.", resource=spec.name, retry_after=60
        )

    async def _watch(self, child: "subprocess.Popen[bytes]") -> None:
        """Kill the child if it uses too much memory. A resource limit (setrlimit) would make the engine hang."""
        while _memory_of(child.pid) <= self._limits.memory:  # noqa: ASYNC110  # the system has no event for it
            await asyncio.sleep(_WATCH_SECONDS)
        _kill(child)


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # uvloop runs Python between fork and exec, which sometimes crashes the child of a process with many threads. So
    # `subprocess` starts the child. The event loop's thread calls this function, not a thread of a pool: the kernel
    # kills the child (PR_SET_PDEATHSIG) as soon as the thread that started it ends.
    return subprocess.Popen(  # noqa: S603  # our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},  # no settings or secrets of the service
    )


def _memory_of(pid: int) -> int:
    """Return the anonymous memory of a process in bytes (proc_pid_status(5)), or 0 if it is unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()


def _done(result: Done | Refused) -> Done:
    if isinstance(result, Refused):
        raise InvalidRequest(result.message, field="path")
    return result

"""Ingests files: lists and uploads them, and follows their jobs to the end."""

import asyncio
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from causeway.cli.answers import Job, StoredDocument
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, UsageError
from causeway.cli.library import Library
from servicekit import keys
from servicekit.characters import has_surrogates

_FIRST_POLL_SECONDS = 0.1
_MAX_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Source:
    """A file to ingest, and its name for citations."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a file.

    Attributes:
        state: The final state of the job; or ``unchanged``, ``removed`` or ``failed`` without a job.
        job: The job; None if the file needed no job, or if the command did not see the end of the job.
    """

    source: Source
    state: str
    reason: str = ""
    message: str = ""
    job: Job | None = None

    @property
    def ok(self) -> bool:
        """Return whether the platform has the file's current content, or no longer has a removed file."""
        return self.state in {"succeeded", "unchanged", "removed"}


class Watcher(Protocol):
    """Receives the progress of the files."""

    def started(self, source: Source) -> None:
        """Receive a file whose upload begins."""

    def updated(self, source: Source, job: Job) -> None:
        """Receive the changed job of a file."""

    def finished(self, outcome: Outcome) -> None:
        """Receive the outcome of a file, successful or not."""


def find(paths: Sequence[Path], *, allow_empty: bool = False) -> list[Source]:
    """Return the files of the command line, and all files in its directories except hidden ones.

    The name of a file in a directory is its path below the directory, so that names in different folders differ.

    Args:
        paths: The paths of the command line.
        allow_empty: Whether an empty result is allowed.

    Raises:
        UsageError: There are no files, a path is neither a file nor a directory, or two files would have the same
            name and replace each other.
    """
    sources: dict[str, Source] = {}
    for path in paths:
        if not path.is_dir() and not path.is_file():  # a named pipe, for example, would block the upload
            raise UsageError(f"{path} is neither a regular file nor a directory")
    for source in iterate_sources(paths):
        other = sources.setdefault(source.name, source)
        if other.path.resolve() != source.path.resolve():
            raise UsageError(
                f"{other.path} and {source.path} would both have the name {source.name}; rename one of them"
            )
    if not sources and not allow_empty:
        raise UsageError(f"there is no file in {', '.join(str(path) for path in paths)}")
    return list(sources.values())


def iterate_sources(paths: Iterable[Path]) -> Iterator[Source]:
    """Yield the files, and all files in the directories except hidden ones, in order."""
    for path in paths:
        if not path.is_dir():
            yield Source(path, keys.file_name(path.name))
            continue
        for directory, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                found = Path(directory, name)
                if not name.startswith(".") and found.is_file():
                    yield Source(found, keys.file_name(found.relative_to(path).as_posix()))


class ProgressTimer:
    """Measures the time since the last progress of several jobs.

    The jobs share a timer, because a queued job makes no progress while the workers process the jobs before it.

    Args:
        patience: Maximum seconds during which no job makes progress.
        clock: Returns seconds of a monotonic clock.
    """

    def __init__(self, patience: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = patience
        self.now = clock
        self._progressed_at = clock()

    def restart(self) -> None:
        """Record that one of the jobs has made progress."""
        self._progressed_at = self.now()

    def has_expired(self, began_at: float) -> bool:
        """Return whether a job has waited for longer than the patience, while no job made progress.

        Args:
            began_at: The time, by `now`, at which the wait for the job began.
        """
        return self.now() - max(began_at, self._progressed_at) > self.patience


async def ingest(
    client: Client,
    index: str,
    sources: Sequence[Source],
    watcher: Watcher,
    *,
    at_once: int = 4,
    patience: float = 600.0,
    stored: Mapping[str, StoredDocument] | None = None,
    pictures: bool = False,
) -> list[Outcome]:
    """Ingest files; if a file fails, the others continue.

    Args:
        client: The platform's client.
        index: The index.
        sources: The files.
        watcher: Receives the progress.
        at_once: The maximum number of files that are ingested concurrently.
        patience: Seconds. If no job makes progress for this time, the files whose jobs have not ended count as
            failed. Their jobs continue.
        stored: The documents of the index, by name. Files with the same content are not sent.
        pictures: Whether to store pictures of the pages.

    Returns:
        The outcomes, in the order of ``sources``.

    Raises:
        Unreachable: The platform cannot be reached, even after retries.
    """
    outcomes: dict[Source, Outcome] = {}
    waiting = iter(sources)
    timer = ProgressTimer(patience)

    async def ingest_one(source: Source) -> Outcome:
        watcher.started(source)
        if has_surrogates(source.name):  # Python decodes bytes that are not UTF-8 to lone surrogates
            message = "the name of the file is not valid UTF-8; rename the file"
            return Outcome(source, "failed", "INVALID_NAME", message)
        try:
            if await _is_stored(source, (stored or {}).get(source.name)):
                return Outcome(source, "unchanged")
            job = await client.upload(index, source.name, source.path, pictures=pictures)
            on_change = functools.partial(watcher.updated, source)
            job = await wait_for_job(Library(client), job, on_change, timer=timer)
        except OSError as error:
            return Outcome(source, "failed", "UNREADABLE_FILE", error.strerror or str(error))
        except CommandError as error:
            if error.exit_code != CommandError.exit_code:
                raise  # the platform cannot be reached, so the other files would also fail
            return Outcome(source, "failed", "REFUSED", str(error))
        return Outcome(source, job.state, job.reason, job.message, job)

    async def work() -> None:
        for source in waiting:
            outcomes[source] = await ingest_one(source)
            watcher.finished(outcomes[source])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(sources))):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [outcomes[source] for source in sources]


async def _is_stored(source: Source, document: StoredDocument | None) -> bool:
    return document is not None and document.sha256 == await asyncio.to_thread(_sha256, source.path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def wait_for_job(
    library: Library,
    job: Job,
    on_change: Callable[[Job], None] = lambda _: None,
    *,
    timer: ProgressTimer | None = None,
) -> Job:
    """Wait until a job has ended; return the job.

    Args:
        library: The platform's contents.
        job: The accepted job.
        on_change: Called with the job at the start and after each change.
        timer: Measures the time without progress. None: only this job counts.

    Raises:
        CommandError: The timer has expired. The job continues on the platform.
    """
    timer = timer or ProgressTimer()
    poll, began_at = _FIRST_POLL_SECONDS, timer.now()
    on_change(job)
    while not job.has_ended:
        await asyncio.sleep(poll)
        before, job = job, await library.job(job.id)
        if job != before:
            poll = _FIRST_POLL_SECONDS
            timer.restart()
            on_change(job)
        elif timer.has_expired(began_at):
            raise CommandError(
                f"job {job.id} is {job.state}, and no job has made progress for {timer.patience:g} s; it continues"
            )
        else:
            poll = min(poll * 1.5, _MAX_POLL_SECONDS)
    return job

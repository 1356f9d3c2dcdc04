import asyncio
from pathlib import Path
from typing import Any

import pytest
from causeway.cli.answers import Job
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, Unreachable
from causeway.cli.ingesting import Outcome, ProgressTimer, Source, find, ingest, wait_for_job


class Watcher:
    """Record the notifications."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def started(self, source: Source) -> None:
        self.events.append((source.name, "started"))

    def updated(self, source: Source, job: Job) -> None:
        self.events.append((source.name, job.state))

    def finished(self, outcome: Outcome) -> None:
        self.events.append((outcome.source.name, f"finished: {outcome.state}"))


async def test_a_job_is_followed_to_its_end(gateway: Any, tmp_path: Path) -> None:
    """The watcher receives each change of the job, in order."""
    (tmp_path / "a.md").write_text("x")
    watcher = Watcher()
    async with Client(gateway.url) as client:
        (outcome,) = await ingest(client, "x", find([tmp_path / "a.md"]), watcher)
    assert outcome.ok
    states = [what for _, what in watcher.events]
    assert states == ["started", "queued", "parsing", "indexing", "indexing", "succeeded", "finished: succeeded"]


class OneWorker:
    """A library whose single worker processes a long job before the other jobs; each of its pages takes 100 s."""

    def __init__(self, pages: int) -> None:
        self.now = 0.0
        self._long = iter(
            [*(Job("long", "parsing", pages_done=page) for page in range(1, pages)), Job("long", "succeeded")]
        )
        self._behind = iter([Job("behind", "succeeded")])
        self._is_done = False

    async def job(self, job_id: str) -> Job:
        if job_id == "long":
            self.now += 100
            job = next(self._long)
            self._is_done = job.has_ended
            return job
        return next(self._behind) if self._is_done else Job("behind", "queued")


async def test_a_job_behind_a_long_job_does_not_fail() -> None:
    """A job waits in the queue for longer than the patience while another job of the same timer makes progress."""
    library: Any = OneWorker(pages=6)
    timer = ProgressTimer(250, clock=lambda: library.now)
    jobs = await asyncio.gather(
        *(wait_for_job(library, Job(job_id, "queued"), timer=timer) for job_id in ("long", "behind"))
    )
    assert [job.state for job in jobs] == ["succeeded", "succeeded"]
    assert library.now > timer.patience


async def test_jobs_without_progress_fail() -> None:
    """If no job makes progress for longer than the patience, the wait for each of them fails."""
    library: Any = OneWorker(pages=6)
    timer = ProgressTimer(250, clock=iter(range(0, 10_000, 100)).__next__)
    with pytest.raises(CommandError, match="job behind is queued, and no job has made progress for 250 s"):
        await wait_for_job(library, Job("behind", "queued"), timer=timer)


async def test_a_busy_platform_delays_a_job(gateway: Any, tmp_path: Path) -> None:
    """A job does not fail if the platform refuses requests for its state with 429 or 503."""
    (tmp_path / "a.md").write_text("x")
    gateway.refusals = [(503, {"retry-after": "0"}), (429, {"retry-after": "0"})]
    async with Client(gateway.url, first_wait=0.01) as client:
        (outcome,) = await ingest(client, "x", find([tmp_path / "a.md"]), Watcher())
    assert outcome.ok


async def test_a_file_that_cannot_be_read(gateway: Any, tmp_path: Path) -> None:
    """A file that cannot be read fails with a reason. The other files are ingested. The outcomes are in the order
    of the files.
    """
    (tmp_path / "b.md").write_text("x")
    sources = [Source(tmp_path / "missing.md", "missing.md"), Source(tmp_path / "b.md", "b.md")]
    async with Client(gateway.url) as client:
        missing, readable = await ingest(client, "x", sources, Watcher())
    assert (missing.state, missing.reason, missing.message) == (
        "failed",
        "UNREADABLE_FILE",
        "No such file or directory",
    )
    assert readable.ok


async def test_an_unreachable_platform_is_one_error(no_gateway: str, tmp_path: Path) -> None:
    """If the platform cannot be reached, `ingest` raises one error for all files."""
    for name in "abc":
        (tmp_path / name).write_text("x")
    async with Client(no_gateway, first_wait=0.001) as client:
        with pytest.raises(Unreachable):
            await ingest(client, "x", find([tmp_path]), Watcher())


def test_decomposed_names_are_composed(tmp_path: Path) -> None:
    """Files with decomposed names, as on macOS, have the names that they have on other systems."""
    (tmp_path / "U\u0308bung").mkdir()
    (tmp_path / "U\u0308bung" / "a\u0308.md").write_text("x")
    assert [source.name for source in find([tmp_path])] == ["\u00dcbung/\u00e4.md"]
    assert [source.name for source in find([tmp_path / "U\u0308bung" / "a\u0308.md"])] == ["\u00e4.md"]

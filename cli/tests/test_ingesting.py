from pathlib import Path
from typing import Any

import pytest
from causeway.cli.answers import Job
from causeway.cli.client import Client
from causeway.cli.errors import Unreachable
from causeway.cli.ingesting import Outcome, Source, find, ingest


class Watcher:
    """Record the notifications."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def started(self, source: Source) -> None:
        self.told.append((source.name, "started"))

    def updated(self, source: Source, job: Job) -> None:
        self.told.append((source.name, job.state))

    def finished(self, outcome: Outcome) -> None:
        self.told.append((outcome.source.name, f"finished: {outcome.state}"))


async def test_a_job_is_followed_to_its_end(gateway: Any, tmp_path: Path) -> None:
    """The watcher gets every change of the job in order."""
    (tmp_path / "a.md").write_text("x")
    watcher = Watcher()
    async with Client(gateway.url) as client:
        (outcome,) = await ingest(client, "x", find([tmp_path / "a.md"]), watcher)
    assert outcome.ok
    told = [what for _, what in watcher.told]
    assert told == ["started", "queued", "parsing", "indexing", "indexing", "succeeded", "finished: succeeded"]


async def test_a_busy_platform_delays_a_job(gateway: Any, tmp_path: Path) -> None:
    """Refusals while a job is followed do not fail it."""
    (tmp_path / "a.md").write_text("x")
    gateway.refusals = [(503, {"retry-after": "0"}), (429, {"retry-after": "0"})]
    async with Client(gateway.url, first_wait=0.01) as client:
        (outcome,) = await ingest(client, "x", find([tmp_path / "a.md"]), Watcher())
    assert outcome.ok


async def test_a_file_that_cannot_be_read(gateway: Any, tmp_path: Path) -> None:
    """An unreadable file fails with its reason. The others are ingested, and the outcomes have the order of the
    files.
    """
    (tmp_path / "b.md").write_text("x")
    sources = [Source(tmp_path / "gone.md", "gone.md"), Source(tmp_path / "b.md", "b.md")]
    async with Client(gateway.url) as client:
        gone, there = await ingest(client, "x", sources, Watcher())
    assert (gone.state, gone.reason, gone.message) == ("failed", "UNREADABLE_FILE", "No such file or directory")
    assert there.ok


async def test_a_missing_platform_is_one_error(no_gateway: str, tmp_path: Path) -> None:
    """A missing platform raises one error for all files."""
    for name in "abc":
        (tmp_path / name).write_text("x")
    async with Client(no_gateway, first_wait=0.001) as client:
        with pytest.raises(Unreachable):
            await ingest(client, "x", find([tmp_path]), Watcher())

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from causeway.cli.client import Client
from causeway.cli.folder import changes
from causeway.cli.ingesting import Outcome, Watcher
from causeway.cli.mirror import Mirror, SyncOptions


class RecordingWatcher:
    """A watcher that records the outcomes of files."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    def started(self, source: Any) -> None:
        """Ignore it."""

    def updated(self, source: Any, job: Any) -> None:
        """Ignore it."""

    def finished(self, outcome: Outcome) -> None:
        """Record it."""
        self.outcomes.append((outcome.state, outcome.source.name))

    async def wait_for(self, *expected: tuple[str, str]) -> None:
        """Wait until all these outcomes are recorded, then clear the record."""
        async with asyncio.timeout(60):
            while not set(expected) <= set(self.outcomes):  # noqa: ASYNC110  # the outcomes come from a watcher in a thread
                await asyncio.sleep(0.02)
        self.outcomes.clear()


Watching = Callable[..., contextlib.AbstractAsyncContextManager[RecordingWatcher]]


@pytest.fixture
def watching(gateway: Any, tmp_path: Path) -> Watching:
    """Return a context manager that mirrors a folder to the index ``x``."""

    @contextlib.asynccontextmanager
    async def watch(poll: float) -> AsyncIterator[RecordingWatcher]:
        watcher = RecordingWatcher()

        @contextlib.contextmanager
        def shown(_: int) -> Iterator[Watcher]:
            yield watcher

        async with Client(gateway.url, first_wait=0.01) as client:
            mirror = Mirror(client, SyncOptions("x", 2, 60), shown, retry=0.05)
            errors: list[str] = []
            task = asyncio.create_task(mirror.watch([tmp_path / "folder"], errors.append, poll=poll))
            try:
                yield watcher
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    return watch


@pytest.mark.parametrize("poll", [0, 0.05])
async def test_an_index_follows_a_folder(gateway: Any, tmp_path: Path, watching: Watching, poll: float) -> None:
    """The mirror ingests existing, new, changed and renamed files, also in new folders. It removes the documents of
    deleted files.
    """
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.md").write_text("a")
    async with watching(poll) as watcher:
        await watcher.wait_for(("succeeded", "a.md"))
        (folder / "b.md").write_text("b")
        await watcher.wait_for(("succeeded", "b.md"))
        (folder / "a.md").write_text("changed")
        await watcher.wait_for(("succeeded", "a.md"))
        (folder / "b.md").rename(folder / "c.md")
        await watcher.wait_for(("succeeded", "c.md"), ("removed", "b.md"))
        (folder / "deep").mkdir()
        (folder / "deep" / "d.md").write_text("d")
        (folder / ".hidden").write_text("x")
        await watcher.wait_for(("succeeded", "deep/d.md"))
        (folder / "a.md").unlink()
        await watcher.wait_for(("removed", "a.md"))
    assert sorted(gateway.stored["x"]) == ["c.md", "deep/d.md"]
    assert all(name != ".hidden" for _, name, _ in gateway.uploads)


async def test_changes_during_the_first_snapshot_are_noticed(tmp_path: Path) -> None:
    """The watch also notices a file that is written while the first snapshot is read."""
    async with aclosing(changes([tmp_path])) as notifications:
        await anext(notifications)
        (tmp_path / "a.md").write_text("a")
        async with asyncio.timeout(20):
            await anext(notifications)


async def test_empty_files_fail_once(gateway: Any, tmp_path: Path, watching: Watching) -> None:
    """The mirror reports an empty file once, whether the file exists at the start or appears later."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "first.md").touch()
    async with watching(0.05) as watcher:
        await watcher.wait_for(("failed", "first.md"))
        (folder / "second.md").touch()
        await watcher.wait_for(("failed", "second.md"))
        (folder / "second.md").write_text("b")
        await watcher.wait_for(("succeeded", "second.md"))
        (folder / "third.md").write_text("c")
        async with asyncio.timeout(60):
            while ("succeeded", "third.md") not in watcher.outcomes:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)
        assert watcher.outcomes == [("succeeded", "third.md")]


async def test_the_watch_waits_for_an_unavailable_platform(
    gateway: Any, tmp_path: Path, watching: Watching
) -> None:
    """The mirror repeats a failed synchronisation, although no file changes."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.md").write_text("a")
    gateway.refusals = [(500, {}), (500, {})]
    async with watching(0) as watcher:
        await watcher.wait_for(("succeeded", "a.md"))
    assert gateway.stored["x"] == {"a.md": b"a"}

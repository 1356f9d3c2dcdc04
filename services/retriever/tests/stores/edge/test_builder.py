"""The build process: one at a time, in its own directory, with every outcome handled."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from causeway_testing.servers import eventually
from retriever.domain.index import Contents, IndexSpec
from retriever.stores.edge.build_child import Done
from retriever.stores.edge.builder import Builder, Limits
from retriever.stores.vector_storage import VectorStorage
from servicekit.errors import InvalidRequest, RateLimited, Unavailable

SPEC = IndexSpec("local", "notes", "m", 8)


def builder(directory: Path, script: str = "", limits: Limits | None = None) -> Builder:
    """Return a builder whose child runs a script."""
    limits = limits or Limits(seconds=20)
    return Builder(directory / "building", lambda _: None, 1000, limits, [sys.executable, "-c", script])


async def build(builder: Builder) -> Done:
    return await builder.build("compact", Path("source"), Path("target"), SPEC, VectorStorage())


async def test_one_build_runs_at_a_time(tmp_path: Path) -> None:
    """One build runs at a time, in a directory of its own. Builds above the limit of the queue are refused."""
    builder_ = builder(tmp_path)
    root = tmp_path / "building"
    used: list[Path] = []

    async def work() -> None:
        async with builder_.working_directory(0) as directory:
            assert list(root.iterdir()) == [directory]
            (directory / "file").write_bytes(b"x")
            await asyncio.sleep(0.005)
            used.append(directory)

    results = await asyncio.gather(*(work() for _ in range(18)), return_exceptions=True)
    assert [type(result) for result in results if result is not None] == [RateLimited, RateLimited]
    assert len(set(used)) == 16
    assert list(root.iterdir()) == []
    await work()  # the queue accepts builds again


async def test_unfinished_builds_are_removed(tmp_path: Path) -> None:
    """The next process removes the unfinished builds of a dead one."""
    (tmp_path / "building" / "x" / "built").mkdir(parents=True)
    builder(tmp_path)
    assert list((tmp_path / "building").iterdir()) == []


async def test_results_and_failures_of_a_child(tmp_path: Path) -> None:
    """A build returns its result or refuses the snapshot. Each other outcome raises Unavailable."""
    done = b'{"type": "done", "points": 3, "contents": {"documents": 1, "chunks": 2}}'
    answer = "import sys; sys.stdin.read(); sys.stdout.buffer.write({!r})"
    assert await build(builder(tmp_path, answer.format(done))) == Done(3, Contents(1, 2))
    refused = b'{"type": "refused", "message": "It is cut off."}'
    with pytest.raises(InvalidRequest, match=r"It is cut off\."):
        await build(builder(tmp_path, answer.format(refused)))
    for script in (
        "import sys; sys.exit(3)",
        "raise ValueError",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import sys; sys.stdout.write('nonsense')",
        answer.format(done.replace(b"points", b"\xff")),
        answer.format(b'{"type": "done", "x": ' + b"[" * 50_000),
        "",
    ):
        with pytest.raises(Unavailable):
            await build(builder(tmp_path, script))


async def test_a_child_above_its_limits_is_killed(tmp_path: Path) -> None:
    """A child that exceeds its time or memory is killed."""
    pid = tmp_path / "pid"
    asleep = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    for script, limits in (
        (asleep, Limits(seconds=3.0)),
        (f"x = bytearray(b'x') * 100_000_000; {asleep}", Limits(seconds=90.0, memory=80_000_000)),
    ):
        with pytest.raises(Unavailable):
            await build(builder(tmp_path, script, limits))
    assert not Path(f"/proc/{pid.read_text()}").exists()


async def test_a_cancelled_build_stops_its_child(tmp_path: Path) -> None:
    """A cancelled build stops its child."""
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    task = asyncio.create_task(build(builder(tmp_path, script)))
    await eventually(lambda: pid.exists() and pid.read_text() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIG_DFL)

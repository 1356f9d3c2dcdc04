import asyncio
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.servers import eventually
from servicekit.reloadable import Reloadable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "number.txt"
    path.write_text("1")
    return path


def number(raw: bytes) -> int:
    return int(raw)


def test_the_first_load_is_strict(path: Path) -> None:
    """A missing or invalid file causes an error at the first load, so that the process does not start."""
    with pytest.raises(FileNotFoundError):
        Reloadable(path.with_name("missing"), number)
    path.write_text("one")
    with pytest.raises(ValueError, match="one"):
        Reloadable(path, number)


def test_a_new_content_is_a_new_snapshot(path: Path, log: Any) -> None:
    """A changed file is parsed and logged once. An unchanged file is not parsed again."""
    parsed: list[bytes] = []

    def parse(raw: bytes) -> int:
        parsed.append(raw)
        return int(raw)

    reloadable = Reloadable(path, parse)
    assert (reloadable.check(), reloadable.current) == (False, 1)
    path.write_text("2")
    assert (reloadable.check(), reloadable.current) == (True, 2)
    assert reloadable.check() is False
    assert parsed == [b"1", b"2"]
    assert [entry["event"] for entry in log] == ["configuration reloaded"]


def test_a_bad_file_keeps_the_old_snapshot(path: Path, log: Any) -> None:
    """An error is logged once, and the old content stays in use until the next valid content."""
    reloadable = Reloadable(path, number)
    path.write_text("two")
    assert [reloadable.check() for _ in range(3)] == [False] * 3
    assert reloadable.current == 1
    (entry,) = log
    assert (entry["log_level"], entry["path"]) == ("error", str(path))
    assert "two" in entry["error"]
    path.write_text("3")
    assert (reloadable.check(), reloadable.current) == (True, 3)


def test_an_empty_file_keeps_the_old_snapshot(path: Path, log: Any) -> None:
    """A file that a program has just truncated removes no policy, also if the parser accepts empty content."""
    reloadable = Reloadable(path, lambda raw: raw)
    for content in ("", " \n"):
        path.write_text(content)
        assert [reloadable.check() for _ in range(2)] == [False] * 2
        assert reloadable.current == b"1"
    assert [entry["log_level"] for entry in log] == ["error"] * 2
    path.write_text("{}")
    assert (reloadable.check(), reloadable.current) == (True, b"{}")


def test_a_parser_that_breaks_keeps_the_old_snapshot(path: Path, log: Any) -> None:
    """A defect of the parser counts as a bad file, and its stack is in the log."""

    def parse(raw: bytes) -> int:
        return {b"1": 1}[raw]

    reloadable = Reloadable(path, parse)
    path.write_text("2")
    assert (reloadable.check(), reloadable.current) == (False, 1)
    assert log[0]["log_level"] == "error"
    assert log[0]["exc_info"]


def test_a_deleted_file_keeps_the_old_snapshot(path: Path, log: Any) -> None:
    """A missing file is logged once for each absence, for example while a mount is swapped."""
    reloadable = Reloadable(path, number)
    for _ in range(2):
        path.unlink()
        assert [reloadable.check() for _ in range(3)] == [False] * 3
        path.write_text("1")
        assert reloadable.check() is False
    assert reloadable.current == 1
    assert [entry["log_level"] for entry in log] == ["warning"] * 2
    assert str(path) in log[0]["error"]


def test_a_swapped_link_is_followed(path: Path) -> None:
    """Kubernetes changes a mounted file by pointing a link to another directory, and the change is loaded."""
    link = path.with_name("link")
    link.symlink_to(path)
    reloadable = Reloadable(link, number)
    other = path.with_name("other.txt")
    other.write_text("2")
    swap = path.with_name("swap")
    swap.symlink_to(other)
    swap.replace(link)
    assert (reloadable.check(), reloadable.current) == (True, 2)


async def test_the_watch_sees_changes_until_it_ends(path: Path, log: Any) -> None:
    """While the watch runs, changes are loaded, even after invalid content. The end of the block ends its task."""
    before = asyncio.all_tasks()
    async with Reloadable(path, number, interval=0.01) as reloadable:
        assert len(asyncio.all_tasks() - before) == 1
        path.write_text("bad")
        await eventually(lambda: any("bad" in entry.get("error", "") for entry in log))
        path.write_text("2")
        await eventually(lambda: reloadable.current == 2)
    assert asyncio.all_tasks() == before


async def test_the_callback_gets_changes(path: Path, log: Any) -> None:
    """The listener is called once for each valid change, on the event loop. The error of a failing listener is
    logged, and does not end the watch.
    """
    changes: list[tuple[int, bool]] = []

    def listen(value: int) -> None:
        changes.append((value, asyncio.current_task() is not None))
        raise RuntimeError("cannot use it")

    async with Reloadable(path, number, interval=0.01, on_change=listen):
        path.write_text("2")
        await eventually(lambda: changes == [(2, True)])
        path.write_text("bad")
        await eventually(lambda: any("bad" in entry.get("error", "") for entry in log))
        path.write_text("3")
        await eventually(lambda: changes == [(2, True), (3, True)])
    assert "a new configuration cannot be used" in [entry["event"] for entry in log]


async def test_ending_the_watch_can_be_cancelled(path: Path) -> None:
    """A cancellation that arrives while the watch ends reaches the caller."""
    reloadable = Reloadable(path, number, interval=60)
    await reloadable.__aenter__()
    leaving = asyncio.create_task(reloadable.__aexit__())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

import asyncio
import os
from pathlib import Path

from causeway.cli.output import OutputLog


async def _copied(log: OutputLog, *pieces: bytes) -> None:
    read, write = os.pipe()
    for piece in pieces:
        os.write(write, piece)
    os.close(write)
    await log.copy(read)
    log.close()


async def test_lines_go_to_the_file_and_to_the_echo(tmp_path: Path) -> None:
    """Each line goes to the file, to the echo and to `last_lines`, even a last line without a line end."""
    seen: list[str] = []
    log = OutputLog(tmp_path / "logs" / "x.log", seen.append)
    await _copied(log, b"one\ntw", b"o\r\nthree")
    assert (tmp_path / "logs" / "x.log").read_text() == "one\ntwo\nthree\n"
    assert seen == ["one", "two", "three"]
    assert log.last_lines == ("one", "two", "three")


async def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    """Invalid UTF-8 becomes a replacement character. Percent signs do not change."""
    log = OutputLog(tmp_path / "x.log")
    await _copied(log, b"\xff 100 %s\n")
    assert (tmp_path / "x.log").read_text() == "\ufffd 100 %s\n"


async def test_a_start_moves_the_old_log_aside(tmp_path: Path) -> None:
    """A new log renames the file of the earlier log and starts with an empty file."""
    for text in (b"first\n", b"second\n"):
        await _copied(OutputLog(tmp_path / "x.log"), text)
    assert (tmp_path / "x.log").read_text() == "second\n"
    assert (tmp_path / "x.log.1").read_text() == "first\n"


async def test_the_files_stay_bounded(tmp_path: Path) -> None:
    """The log has at most three files, none larger than the limit. They contain the newest lines, and `last_lines`
    the last 20.
    """
    log = OutputLog(tmp_path / "x.log", file_bytes=1000)
    await _copied(log, *(b"line %d\n" % number for number in range(1000)))
    files = [tmp_path / "x.log.2", tmp_path / "x.log.1", tmp_path / "x.log"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(path.stat().st_size <= 1000 for path in files)
    newest = "".join(path.read_text() for path in files).splitlines()
    assert len(newest) > 200
    assert newest == [f"line {number}" for number in range(1000 - len(newest), 1000)]
    assert log.last_lines == tuple(newest[-20:])


async def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    """A very long line is written in pieces, so that it does not fill the memory."""
    seen: list[str] = []
    log = OutputLog(tmp_path / "x.log", seen.append)
    read, write = os.pipe()
    copying = asyncio.create_task(log.copy(read))
    for _ in range(50):
        await asyncio.to_thread(os.write, write, b"x" * 4096)
    os.close(write)
    await copying
    log.close()
    assert sum(len(line) for line in seen) == 50 * 4096
    assert max(len(line) for line in seen) <= 2 * 64 * 1024 + 1

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create files in folders, also hidden ones."""
    root = tmp_path / "folder"
    for name in ("b.md", "a.pdf", "deep/er/b.md", ".hidden.md", ".git/config.md", "deep/.x/y.md"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_a_directory_is_ingested(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """The command ingests all files below a directory except hidden ones. The names are relative paths. The last
    line of the output has the totals.
    """
    result = cli("ingest", folder, "--index", "x", "--url", gateway.url)
    assert result.exit_code == 0, result.stderr
    assert sorted(gateway.uploads) == [("x", name, name.encode()) for name in ("a.pdf", "b.md", "deep/er/b.md")]
    assert "succeeded: deep/er/b.md, 2 pages, 5 chunks" in result.stdout
    assert result.stdout.splitlines()[-1] == "3 succeeded"


def test_failures_do_not_stop_the_others(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """The command prints failed jobs and refused uploads with their reasons, ingests the other files, and exits
    with 1.
    """
    for name in ("good.md", "same.md", "bad.pdf", "refused.xyz"):
        (tmp_path / name).write_text("x")
    paths = [tmp_path / name for name in ("bad.pdf", "refused.xyz", "good.md", "same.md")]
    result = cli("ingest", *paths, "--index", "x", "--url", gateway.url)
    assert result.exit_code == 1
    assert "failed: bad.pdf, bad.pdf is encrypted" in result.stdout
    assert "failed: refused.xyz, refused.xyz: files of this type are not read here" in result.stdout
    assert "succeeded: good.md" in result.stdout
    assert "unchanged: same.md" in result.stdout
    assert result.stdout.splitlines()[-1] == "2 failed, 1 succeeded, 1 unchanged"


def test_warnings_are_printed(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """A file with warnings counts as ingested. `causeway ingest` and `causeway jobs list` print the warnings."""
    (tmp_path / "scanned.pdf").write_text("x")
    result = cli("ingest", tmp_path / "scanned.pdf", "--index", "x", "--url", gateway.url)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "succeeded: scanned.pdf, 2 pages, 5 chunks, 3 warnings",
        "  not read: page 2: The page has no text.",
        "  not read: film.mp4: A film.",
        "  not read: 1 more part",
        "1 succeeded",
    ]
    listed = cli("jobs", "list", "--url", gateway.url)
    assert "3 warnings: page 2: The page has no text." in " ".join(listed.stdout.split())


def test_json(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """--json prints one object for each file."""
    for name in ("good.md", "bad.pdf"):
        (tmp_path / name).write_text("x")
    files = (tmp_path / "good.md", tmp_path / "bad.pdf")
    result = cli("ingest", *files, "-i", "x", "--at-once", "1", "--json", "--url", gateway.url)
    assert result.exit_code == 1
    found = {file["name"]: file for file in map(json.loads, result.stdout.splitlines())}
    assert found["good.md"] == {
        "file": str(tmp_path / "good.md"),
        "name": "good.md",
        "state": "succeeded",
        "reason": None,
        "message": None,
        "job_id": "job-1",
        "document_id": "id of good.md",
        "pages": 2,
        "chunks": 5,
        "warnings": [],
        "warning_count": 0,
    }
    assert found["bad.pdf"]["reason"] == "UNREADABLE_DOCUMENT"


def test_at_once_limits_concurrent_files(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """The number of files between the start of their upload and the end of their job is at most --at-once."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.md").write_text("x")
    assert cli("ingest", folder, "-i", "x", "--at-once", "2", "--url", gateway.url).exit_code == 0
    assert gateway.most_in_flight == 2


def test_a_job_without_progress_fails(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """A file fails if no job makes progress for --patience seconds. The message has the id of the job."""
    (tmp_path / "stuck.md").write_text("x")
    result = cli("ingest", tmp_path / "stuck.md", "-i", "x", "--patience", "1", "--url", gateway.url)
    assert result.exit_code == 1
    assert "job job-1 is queued, and no job has made progress for 1 s; it continues" in result.stdout


def test_two_files_of_one_name(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """The command refuses two files with the same name before it uploads any. It uploads a file that is given twice
    only once.
    """
    result = cli("ingest", folder / "b.md", folder / "deep/er/b.md", "-i", "x", "--url", gateway.url)
    assert result.exit_code == 2
    assert "would both have the name b.md" in result.stderr
    assert gateway.uploads == []
    assert cli("ingest", folder / "b.md", folder / "b.md", "-i", "x", "--url", gateway.url).exit_code == 0
    assert len(gateway.uploads) == 1


def test_nothing_to_ingest(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """An empty directory, a missing path and a missing index cause exit code 2."""
    (tmp_path / "empty").mkdir()
    assert cli("ingest", tmp_path / "empty", "-i", "x", "--url", gateway.url).exit_code == 2
    assert cli("ingest", tmp_path / "missing", "-i", "x", "--url", gateway.url).exit_code == 2
    assert cli("ingest", tmp_path / "empty", "--url", gateway.url).exit_code == 2


def test_no_gateway_answers(no_gateway: str, cli: Callable[..., Any], folder: Path) -> None:
    """Without a gateway, the exit code is 3, and the command prints one line for all files."""
    result = cli("ingest", folder, "-i", "x", "--url", no_gateway)
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1


def test_unchanged_files_are_not_sent(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """The command uploads only changed files. With --pictures it uploads all files, because only the platform knows
    which pictures are missing.
    """
    assert cli("ingest", folder, "-i", "x", "--url", gateway.url).exit_code == 0
    (folder / "b.md").write_text("new")
    result = cli("ingest", folder, "-i", "x", "--url", gateway.url)
    assert [name for _, name, _ in gateway.uploads[3:]] == ["b.md"]
    assert "unchanged: a.pdf" in result.stdout
    assert result.stdout.splitlines()[-1] in ("2 unchanged, 1 succeeded", "1 succeeded, 2 unchanged")
    assert cli("ingest", folder, "-i", "x", "--pictures", "--url", gateway.url).exit_code == 0
    assert sorted(gateway.pictures) == ["a.pdf", "b.md", "deep/er/b.md"]


def test_delete_missing(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """--delete-missing removes the documents whose file does not exist, but not documents that were sent as text.
    Without the option, the command removes nothing.
    """
    gateway.stored["x"] = {"a note": None, "old.md": b"old"}
    assert cli("ingest", folder, "-i", "x", "--url", gateway.url).exit_code == 0
    (folder / "a.pdf").unlink()
    assert cli("ingest", folder, "-i", "x", "--url", gateway.url).exit_code == 0
    assert gateway.removed == []
    result = cli("ingest", folder, "-i", "x", "--delete-missing", "--url", gateway.url)
    assert (result.exit_code, sorted(gateway.removed)) == (0, ["a.pdf", "old.md"])
    assert "removed: a.pdf" in result.stdout
    assert sorted(gateway.stored["x"]) == ["a note", "b.md", "deep/er/b.md"]


def test_a_name_that_is_not_utf_8(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """A file whose name is not valid UTF-8 fails with the reason. The other files are ingested."""
    try:
        (folder / "caf\udce9.md").write_text("text")
    except OSError:
        pytest.skip("the file system accepts only names in UTF-8")
    result = cli("ingest", folder, "-i", "x", "--url", gateway.url)
    assert (result.exit_code, len(gateway.uploads)) == (1, 3)
    expected = "failed: caf\\udce9.md, the name of the file is not valid UTF-8; rename the file"
    assert expected in result.stdout.splitlines()
    shown = cli("ingest", folder, "-i", "x", "--json", "--url", gateway.url).stdout.splitlines()
    [failed] = [line for line in map(json.loads, shown) if line["state"] == "failed"]
    assert failed["name"] == "caf\udce9.md"


def test_a_name_with_a_line_feed(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """The outcome of a file whose name has a line feed is one line, so that it cannot imitate another outcome."""
    (folder / "x\nsucceeded: y.md").write_text("text")
    result = cli("ingest", folder, "-i", "x", "--url", gateway.url)
    names = [line.partition(",")[0].partition(": ")[2] for line in result.stdout.splitlines()[:-1]]
    assert sorted(names) == ["a.pdf", "b.md", "deep/er/b.md", "x\\nsucceeded: y.md"]


def test_a_pipe_is_refused(gateway: Any, cli: Callable[..., Any], tmp_path: Path) -> None:
    """The command refuses a named pipe instead of waiting for its data."""
    os.mkfifo(tmp_path / "pipe")
    result = cli("ingest", "pipe", "-i", "x", "--url", gateway.url)
    assert (result.exit_code, result.stderr) == (2, "causeway: pipe is neither a regular file nor a directory\n")


def test_delete_missing_keeps_a_file_with_another_name(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """--delete-missing keeps the document of an existing file that the platform stores under another name."""
    (folder / "C:\\notes.md").write_text("text")
    for _ in range(2):
        assert cli("ingest", folder, "-i", "x", "--delete-missing", "--url", gateway.url).exit_code == 0
    assert gateway.removed == []
    assert "notes.md" in gateway.stored["x"]
    gateway.refusals = [(503, {})] * 20
    assert cli("ingest", folder, "-i", "x", "--delete-missing", "--url", gateway.url).exit_code == 1
    assert gateway.removed == []


def test_poll_requires_watch(gateway: Any, cli: Callable[..., Any], folder: Path) -> None:
    """--poll without --watch causes exit code 2."""
    assert cli("ingest", folder, "-i", "x", "--poll", "1", "--url", gateway.url).exit_code == 2


@pytest.fixture
def sigint_handler() -> Iterator[None]:
    """Restore Python's handler of SIGINT, because a shell makes background processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_handler")
def test_an_interruption(gateway: Any, causeway: list[str], tmp_path: Path) -> None:
    """Ctrl-C ends the command with exit code 130. The message says that the platform ingests uploaded files."""
    (tmp_path / "stuck.md").write_text("x")
    command = [*causeway, "ingest", "stuck.md", "-i", "x", "--url", gateway.url]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            end = time.monotonic() + 60
            while not gateway.uploads:
                assert time.monotonic() < end
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "causeway jobs list" in stderr
    assert "Traceback" not in stderr

"""Short texts, which are parsed without a fork or in the worker itself."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from ingest.parsing.content import Page
from ingest.parsing.frames import Request
from ingest.parsing.process import Limits, ProcessParser
from ingest.parsing.scans import ScanMode
from ingest.parsing.short_text import MAX_BYTES, is_short_text, parts

FORKING = """
import os, sys
from ingest.parsing import child
from ingest.parsing.content import Page, Section
from ingest.parsing.short_text import is_short_text

def parser(request):
    yield Page(1, (Section((), "child" if os.getppid() == {parent} else "fork"),))

sys.exit(child.serve(parser, is_short_text))
"""


def request_for(path: Path, suffix: str) -> Request:
    return Request(
        path=str(path),
        suffix=suffix,
        max_pages=10,
        max_characters=1_000_000,
        memory=1024**3,
        cpu_seconds=10,
        max_pictures=0,
        max_members=0,
        max_member_bytes=0,
        scans=ScanMode.MISSING,
    )


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        pytest.param(".txt", "Ferries leave.\n\tÄrger in zwei Zeilen.\r\n".encode(), True, id="text"),
        pytest.param(".TXT", b"Ferries leave.", True, id="upper case"),
        pytest.param(".txt", b"a" * MAX_BYTES, True, id="longest"),
        pytest.param(".txt", b"a" * (MAX_BYTES + 1), False, id="too long"),
        pytest.param(".txt", "Ärger".encode("latin-1"), False, id="another encoding"),
        pytest.param(".txt", b"PK\x03\x04text", False, id="ZIP"),
        pytest.param(".txt", b"text\0text", False, id="zeros"),
        pytest.param(".md", b"# Ferries", False, id="Markdown"),
        pytest.param("", b"Ferries leave.", False, id="no suffix"),
    ],
)
def test_what_is_short_text(tmp_path: Path, suffix: str, content: bytes, expected: bool) -> None:
    """A small UTF-8 file without control characters is a short text if its suffix is that of plain text."""
    path = tmp_path / "original"
    path.write_bytes(content)
    assert is_short_text(request_for(path, suffix)) is expected


def test_a_missing_file_is_not_short_text(tmp_path: Path) -> None:
    """A missing file is not a short text; the parser reports the error."""
    assert not is_short_text(request_for(tmp_path / "gone", ".txt"))


async def test_a_short_text_needs_no_fork(tmp_path: Path) -> None:
    """The child itself reads short texts, and a fork reads Markdown files, in any order."""
    script = tmp_path / "child.py"
    script.write_text(FORKING.format(parent=os.getpid()))
    parser = ProcessParser(Limits(), (sys.executable, str(script)))
    found = []
    for name in ("a.txt", "a.md", "b.txt", "b.md"):
        path = tmp_path / name
        path.write_text("Ferries leave.")
        async with contextlib.aclosing(parser.parse(path, name)) as parts:
            found += [part.sections[0].text async for part in parts if isinstance(part, Page)]
    await parser.aclose()
    assert found == ["child", "fork", "child", "fork"]


async def test_the_worker_reads_a_short_text_like_the_child(tmp_path: Path) -> None:
    """The parts are the same with and without the child process."""
    parser = ProcessParser(Limits())
    for name, content in (
        ("a.txt", b"Ferries leave\nat nine.\n\n  They return.\n"),
        ("a.TEXT", b"Ferries leave."),
        ("a.txt", b"\xef\xbb\xbfFerries leave."),
        ("a.txt", "Ärger. 中。\r\n\f\tx".encode()),
        ("a.txt", b" \n"),
        ("a.txt", b'{"a": 1}'),
        ("a.txt", b"<html>Ferries"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        async with contextlib.aclosing(parser.parse(path, name)) as found:
            assert [part async for part in found] == list(parser.read_short(content, name) or ()), content
    await parser.aclose()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        pytest.param(".md", b"# Ferries", id="Markdown"),
        pytest.param("", b"Ferries", id="no suffix"),
        pytest.param(".txt", b"", id="empty"),
        pytest.param(".txt", "Ärger".encode("latin-1"), id="another encoding"),
        pytest.param(".txt", b"\xff\xfea\0", id="UTF-16"),
        pytest.param(".txt", b"text\0text", id="zeros"),
        pytest.param(".txt", b"%PDF-1.7 Ferries", id="PDF"),
        pytest.param(".txt", b" <svg>Ferries</svg>", id="SVG"),
        pytest.param(".txt", b"%!PS Ferries", id="PostScript"),
        pytest.param(".txt", b"RIFFaaaaWEBP", id="WebP"),
        pytest.param(".txt", b"a" * 257 + b"ustar", id="tar"),
        pytest.param(".txt", b"a" * (MAX_BYTES + 1), id="too long"),
    ],
)
def test_the_child_reads_all_other_files(suffix: str, content: bytes) -> None:
    """A file that is not clearly plain text is not parsed in the worker."""
    assert parts(content, suffix, 1_000_000) is None


def test_the_child_reads_a_text_above_the_limit() -> None:
    """A text with more bytes than the limit of characters is not parsed in the worker."""
    assert parts(b"Ferries", ".txt", 7) is not None
    assert parts(b"Ferries", ".txt", 6) is None

"""ingest.parsing.short_text: texts that are read without a process of their own."""

import contextlib
import os
import sys
from pathlib import Path

import pytest
from ingest.parsing.content import Page
from ingest.parsing.frames import Request
from ingest.parsing.process import Limits, ProcessParser
from ingest.parsing.scans import Scans
from ingest.parsing.short_text import LONGEST, is_short_text

FORKING = """
import os, sys
from ingest.parsing import child
from ingest.parsing.content import Page, Section
from ingest.parsing.short_text import is_short_text

def parser(request):
    yield Page(1, (Section((), "child" if os.getppid() == {parent} else "fork"),))

sys.exit(child.serve(parser, is_short_text))
"""


def asked(path: Path, suffix: str) -> Request:
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
        scans=Scans.MISSING,
    )


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        pytest.param(".txt", "Ferries leave.\n\tÄrger in zwei Zeilen.\r\n".encode(), True, id="text"),
        pytest.param(".TXT", b"Ferries leave.", True, id="upper case"),
        pytest.param(".txt", b"a" * LONGEST, True, id="longest"),
        pytest.param(".txt", b"a" * (LONGEST + 1), False, id="too long"),
        pytest.param(".txt", "Ärger".encode("latin-1"), False, id="another encoding"),
        pytest.param(".txt", b"PK\x03\x04text", False, id="ZIP"),
        pytest.param(".txt", b"text\0text", False, id="zeros"),
        pytest.param(".md", b"# Ferries", False, id="Markdown"),
        pytest.param("", b"Ferries leave.", False, id="no suffix"),
    ],
)
def test_what_is_short_text(tmp_path: Path, suffix: str, content: bytes, expected: bool) -> None:
    """A small file of UTF-8 without control characters is short text, if its name is that of a plain text."""
    path = tmp_path / "original"
    path.write_bytes(content)
    assert is_short_text(asked(path, suffix)) is expected


def test_a_file_that_is_gone_is_none(tmp_path: Path) -> None:
    """The process that reads the file reports the error."""
    assert not is_short_text(asked(tmp_path / "gone", ".txt"))


async def test_a_short_text_needs_no_fork(tmp_path: Path) -> None:
    """The child itself reads a short text, and its fork reads a Markdown file, in any order."""
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

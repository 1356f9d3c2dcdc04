import io
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import docx
import openpyxl  # type: ignore[import-untyped]  # ships no types
import pytest
from ingest.parsing.child import parse
from ingest.parsing.content import Head, Page, Part
from ingest.parsing.frames import Request


def parsed(parse: Callable[[Request], Iterator[Part]], content: str | bytes, suffix: str = "") -> list[Part]:
    """Return the output of a format's module for a file with this content, without detecting the format."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content if isinstance(content, bytes) else content.encode("utf-8-sig"))
        file.flush()
        return list(parse(Request(file.name, suffix, 100, 10_000_000, 1024**3, 0)))


Read = Callable[..., tuple[Head, list[Page]]]
Repack = Callable[..., bytes]


@pytest.fixture
def read_parts(tmp_path: Path) -> Callable[..., list[Part]]:
    """Return a function that parses bytes under a name like the child, but in this process."""

    def read_parts(
        content: bytes,
        name: str,
        *,
        max_pages: int = 100,
        max_characters: int = 100_000,
        memory: int = 1024**3,
    ) -> list[Part]:
        path = tmp_path / "original"
        path.write_bytes(content)
        return list(parse(Request(str(path), Path(name).suffix, max_pages, max_characters, memory, 0)))

    return read_parts


@pytest.fixture
def read(read_parts: Callable[..., list[Part]]) -> Read:
    """Return a function that parses bytes like `read_parts` and returns the head and the pages."""

    def read(content: bytes, name: str, **limits: int) -> tuple[Head, list[Page]]:
        head, *parts = read_parts(content, name, **limits)
        assert isinstance(head, Head)
        return head, [part for part in parts if isinstance(part, Page)]

    return read


@pytest.fixture
def make_docx() -> Callable[..., bytes]:
    """Return a function that creates a Word document. A paragraph that begins with ``#`` is a heading."""

    def make(*paragraphs: str) -> bytes:
        document = docx.Document()
        for text in paragraphs:
            level = len(text) - len(text.lstrip("#"))
            if level:
                document.add_heading(text.lstrip("# "), level)
            else:
                document.add_paragraph(text)
        return saved(document)

    return make


@pytest.fixture
def make_xlsx() -> Callable[..., bytes]:
    """Return a function that creates a workbook from the rows of cells of each sheet."""

    def make(**sheets: Iterable[Sequence[Any]]) -> bytes:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        return saved(book)

    return make


@pytest.fixture
def repack() -> Repack:
    """Return a function that replaces or adds parts of a ZIP file."""

    def repack(content: bytes, **parts: bytes | Callable[[bytes], bytes]) -> bytes:
        """Replace parts by name, with ``__`` for a slash. Other parts of ``content`` remain."""
        named = {name.replace("__", "/"): part for name, part in parts.items()}
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                part = named.pop(name, None)
                data = old.read(name)
                new.writestr(name, data if part is None else part(data) if callable(part) else part)
            for name, part in named.items():
                new.writestr(name, part(b"") if callable(part) else part)
        return out.getvalue()

    return repack


def saved(document: Any) -> bytes:
    """Return an Office document as its library saves it."""
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()

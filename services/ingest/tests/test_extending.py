"""The example format of docs/extending.md works as the page describes."""

import contextlib
import importlib.util
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import ingest
import pytest
from ingest.parsing.content import Head, Page
from ingest.parsing.process import Limits, ProcessParser
from ingest.parsing.registry import FORMATS
from servicekit.errors import UnreadableDocument

from .parsing.conftest import parsed

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_CALENDAR = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:The ferry leaves.\nEND:VEVENT\nEND:VCALENDAR\n"
_CHILD = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
runpy.run_module("ingest.parsing.child", run_name="__main__")
"""


def _blocks(language: str) -> list[str]:
    """Return the fenced blocks of the section on file formats."""
    section = (_DOCS / "extending.md").read_text().partition("\n## A file format\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def _load(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module from a file for the duration of the test."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the package with the module of the example and its line in the registry."""
    module, registration, _ = _blocks("python")
    shutil.copytree(Path(ingest.__file__).parent, tmp_path / "ingest", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ingest/parsing/formats/calendars.py").write_text(module)
    registry = tmp_path / "ingest/parsing/registry.py"
    added, last = re.findall(r"^    Format\(.*\n", registration, re.MULTILINE)
    assert registry.read_text().count(last) == 1
    registry.write_text(registry.read_text().replace(last, added + last))
    return tmp_path


@pytest.fixture
async def parser(copy: Path) -> AsyncIterator[ProcessParser]:
    """Return a parser whose child runs the copy."""
    parser = ProcessParser(Limits(), (sys.executable, "-P", "-c", _CHILD, str(copy)))
    yield parser
    await parser.aclose()


async def test_the_child_reads_the_example(parser: ProcessParser, tmp_path: Path) -> None:
    """With the line from the page in the registry, the parsing child detects and reads the format.

    The user gets the refusal of the example. The other formats are not affected.
    """
    (tmp_path / "original").write_text(_CALENDAR)
    for name in ("ferries.ics", "ferries", "ferries.TXT2"):
        async with contextlib.aclosing(parser.parse(tmp_path / "original", name)) as parts:
            head, page = [part async for part in parts]
        assert head == Head("text/calendar")
        assert isinstance(page, Page)
        assert [section.text for section in page.sections] == ["Summary: The ferry leaves."]
    (tmp_path / "original").write_text("BEGIN:VCALENDAR\nEND:VCALENDAR\n")
    with pytest.raises(UnreadableDocument, match="no events"):
        [part async for part in parser.parse(tmp_path / "original", "ferries.ics")]
    (tmp_path / "notes").write_text("# Tides\n\nHigh water at six.\n")
    head, *_ = [part async for part in parser.parse(tmp_path / "notes", "notes.md")]
    assert head == Head("text/markdown")


def test_the_line_in_the_registry_is_enough(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the registry is enough for the name, the media type and the list of formats in messages."""
    registry = _load("registry_with_the_example", copy / "ingest/parsing/registry.py", monkeypatch)
    assert registry.format_by_suffix(".ics").module == "calendars"
    assert registry.SUFFIXES["text/calendar"] == ".ics"
    assert "iCalendar" in registry.READABLE


def test_the_tests_of_the_example_pass(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test function that the page shows passes."""
    _load("ingest.parsing.formats.calendars", copy / "ingest/parsing/formats/calendars.py", monkeypatch)
    conftest = ModuleType("example.conftest")
    conftest.parsed = parsed  # type: ignore[attr-defined]  # as in tests/parsing/conftest.py
    monkeypatch.setitem(sys.modules, "example", ModuleType("example"))
    monkeypatch.setitem(sys.modules, "example.formats", ModuleType("example.formats"))
    monkeypatch.setitem(sys.modules, "example.conftest", conftest)
    (tmp_path / "test_calendars.py").write_text(_blocks("python")[2])
    tests = _load("example.formats.test_calendars", tmp_path / "test_calendars.py", monkeypatch)
    functions = [function for name, function in vars(tests).items() if name.startswith("test_")]
    assert len(functions) == 2
    for function in functions:
        function()


def _table() -> list[str]:
    section = (_DOCS / "ingest.md").read_text().partition("\n## Formats\n")[2]
    return [line.replace("`", "") for line in section.splitlines() if line.startswith("|")][2:]


def test_every_format_has_a_row() -> None:
    """The table of formats in docs/ingest.md names every format of the registry."""
    rows = _table()
    assert [
        format_.name for format_ in FORMATS if not any(row.startswith(f"| {format_.name}") for row in rows)
    ] == []


def test_the_example_row_has_the_columns_of_the_table() -> None:
    """The example row on the page has the same columns as the table of formats in docs/ingest.md."""
    [row] = _blocks("markdown")
    assert row.startswith("| iCalendar |")
    assert row.strip().count("|") == _table()[0].count("|")

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ingest.parsing.detect import detect
from ingest.parsing.refusals import Refusal, Unreadable, Unsupported

PDF = b"%PDF-1.7\n..."


@pytest.fixture
def found(tmp_path: Path) -> Callable[[bytes, str], str]:
    def found(content: bytes, suffix: str) -> str:
        path = tmp_path / "original"
        path.write_bytes(content)
        return detect(path, suffix).module

    return found


@pytest.mark.parametrize(
    ("content", "suffix", "expected"),
    [
        (PDF, ".pdf", "pdf"),
        (PDF, ".PDF", "pdf"),
        (PDF, "", "pdf"),
        (b"junk\n" + PDF, ".pdf", "pdf"),
        (b"# Title", ".md", "markdown"),
        (b"# Title", ".Markdown", "markdown"),
        (b"# Title", "", "plain"),
        (b"a,b\n1,2", ".csv", "delimited"),
        (b"a,b\n1,2", "", "plain"),
        (b'{"a": 1}', ".json", "records"),
        (b'\xef\xbb\xbf[{"a": 1}]', "", "records"),
        (b'{"a": 1}', ".txt", "plain"),
        (b"[section]\nkey=1", ".ini", "plain"),
        (b"x = 1", ".py", "code"),
        (b"#!/bin/sh\nls", "", "code"),
        (b"\xef\xbb\xbf#!/bin/sh\nls", "", "code"),
        (b"\n\n#!/bin/sh\nls", "", "plain"),
        ("Grüße".encode("utf-16"), ".txt", "plain"),
        ("Grüße aus dem Hafen".encode("utf-16-le"), ".txt", "plain"),
        ("Grüße".encode("latin-1"), ".txt", "plain"),
        (b"<!DOCTYPE html><p>x", "", "html"),
        (b"\xef\xbb\xbf <!-- c --> <HTML>", ".txt2", "html"),
        (b'<?xml version="1.0"?><html xmlns="x">', ".xhtml", "html"),
        (b'<?xml version="1.0"?><html xmlns="x">', "", "html"),
        (b"<p>a fragment", ".html", "html"),
        (b"<html> shown as source", ".txt", "plain"),
        (b"{\\rtf1 x}", ".rtf", "rtf"),
        (b"{\\rtf1 x}", "", "rtf"),
        (b"<?xml version='1.0'?><data/>", "", "xml_records"),
        (b"<data/>", ".xml", "xml_records"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nx", "", "subtitles"),
        (b"1\r\n00:00:01,000 --> 00:00:02,000\r\nx", "", "subtitles"),
        (b'{"cells": [{"cell_type": "markdown", "source": "x"}], "nbformat": 4}', "", "notebook"),
        (b"a: 1", ".yml", "yaml_records"),
        (b"a: 1", "", "plain"),
        (b"<svg></svg>\n# A picture", ".md", "markdown"),
        (b"<svg></svg>", ".svelte", "code"),
    ],
)
def test_formats_by_content(found: Callable[[bytes, str], str], content: bytes, suffix: str, expected: str) -> None:
    """The content determines the format. The name only distinguishes text formats."""
    assert found(content, suffix) == expected


@pytest.mark.parametrize(
    ("content", "suffix", "error", "message"),
    [
        (b"", ".pdf", Unreadable, "empty"),
        (PDF, ".md", Unreadable, "is a PDF"),
        (b"text", ".pdf", Unreadable, "plain text"),
        (b"text", ".docx", Unreadable, "plain text"),
        (b"text", ".msg", Unreadable, "plain text"),
        (b"text", ".doc", Unreadable, "plain text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), ".pdf", Unreadable, "is a picture"),
        (bytes(range(256)) * 8, ".pdf", Unreadable, "not a PDF"),
        (bytes(range(256)) * 8, ".md", Unreadable, "not text"),
        (bytes(range(256)) * 8, ".bin", Unsupported, "unknown type"),
        (b"GIF89a" + bytes(64), ".gif", Unsupported, ".gif"),
        (b"\x1f\x8b\x08" + bytes(64), ".gz", Unsupported, "GZIP"),
        (b"<svg></svg>", "", Unsupported, "SVG"),
        (b"<svg></svg>", ".txt", Unsupported, "SVG"),
        (b"%!PS-Adobe", ".ps", Unsupported, "PostScript"),
    ],
)
def test_refusals_say_what_the_file_is(
    found: Callable[[bytes, str], str], content: bytes, suffix: str, error: type[Refusal], message: str
) -> None:
    """A file whose suffix belongs to another format is unreadable. A file of an unknown format is unsupported. The
    message names the detected type.
    """
    with pytest.raises(error, match=message):
        found(content, suffix)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"x.txt": "text"}, "zip_archive"),
        ({"word/document.xml": "text"}, "zip_archive"),
        ({"[Content_Types].xml": "unknown"}, "package of an unknown kind"),
        ({"[Content_Types].xml": "ms-word.document.macroEnabled.main+xml"}, "save it as .docx"),
    ],
)
def test_archives(
    found: Callable[[bytes, str], Any], tmp_path: Path, members: dict[str, str], expected: str
) -> None:
    """A ZIP file is unpacked unless it is a package of documents."""
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    if expected == "zip_archive":
        assert found(archive.read_bytes(), ".zip") == expected
    else:
        with pytest.raises(Unreadable, match=expected):
            found(archive.read_bytes(), ".zip")

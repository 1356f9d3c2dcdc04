"""Damaged, hostile and unusual files, parsed by the real child."""

import asyncio
import contextlib
import gzip
import io
import os
import random
import tarfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from ingest.parsing.content import Page
from ingest.parsing.process import Limits, ProcessParser
from ingest.parsing.refusals import Refusal
from servicekit.errors import InvalidRequest, PayloadTooLarge, UnreadableDocument, UnsupportedMedia

from .conftest import Read, Repack

MEMORY = 512 * 1024**2
BOMB = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">%s]>%s'
LAUGHS = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10 if n else b"lol" * 10) for n in range(9))

Parse = Callable[[bytes | Path, str], Awaitable[str]]
MakeDocx = Callable[..., bytes]
Case = tuple[str, bytes, type[InvalidRequest], str]


@pytest.fixture
async def parse(tmp_path: Path) -> AsyncIterator[Parse]:
    """Return a function that parses a file with a child and returns the text."""
    parser = ProcessParser(Limits(memory=MEMORY, seconds=60))

    async def parse(content: bytes | Path, name: str) -> str:
        path = content if isinstance(content, Path) else tmp_path / os.urandom(8).hex()
        if isinstance(content, bytes):
            path.write_bytes(content)
        async with contextlib.aclosing(parser.parse(path, name)) as parts:
            pages = [part async for part in parts if isinstance(part, Page)]
        return "\n".join(section.text for page in pages for section in page.sections)

    yield parse
    await parser.aclose()


def compound(*streams: str) -> bytes:
    """Return the beginning of a compound file (MS-CFB): its header and a directory with names of streams."""
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
    entries = [name.encode("utf-16-le").ljust(64, b"\0") + bytes(64) for name in ("Root Entry", *streams)]
    return header + b"".join(entries).ljust(4096, b"\0")


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        info = tarfile.TarInfo("a.txt")
        info.size = 5
        file.addfile(info, io.BytesIO(b"words"))
    return buffer.getvalue()


def inflated(part: bytes) -> bytes:
    """Return a document whose text unpacks to more than a quarter of the memory."""
    return part.replace(b"<w:body>", b"<w:body>" + b" " * (MEMORY // 4))


def crowded(part: bytes) -> bytes:
    """Return a document that fits into the memory limit, but whose element tree does not."""
    return part.replace(b"<w:body>", b"<w:body>" + b"<w:p/>" * 3_000_000)


def nested(part: bytes) -> bytes:
    """Return a document with tables in tables."""
    return part.replace(b"<w:body>", b"<w:body>" + b"<w:tbl>" * 300 + b"</w:tbl>" * 300)


def understated(docx: bytes) -> bytes:
    """Return a package with a part that is longer than its directory declares."""
    at = docx.rindex(b"word/document.xml") - 46 + 24  # of the name and the size in its entry
    return docx[:at] + (100).to_bytes(4, "little") + docx[at + 4 :]


@pytest.fixture
def bad(make_docx: MakeDocx, make_xlsx: MakeDocx, make_pdf: Callable[..., bytes], repack: Repack) -> list[Case]:
    """Return bad files: name, content, error and a part of the message."""
    docx, xlsx = make_docx("# Fares", "Adults pay."), make_xlsx(Fleet=[["a", "b"], ["c", "d"]])
    hidden = b"<?xml version='1.0'?><!--" + b" " * 5000 + b"-->"
    word = {"word/document.xml": BOMB % (LAUGHS, b"<w>&a8;</w>")}
    late = {"xl/worksheets/sheet1.xml": hidden + (BOMB % (LAUGHS, b"<x>&a8;</x>"))[21:]}
    return [
        ("empty.docx", b"", UnreadableDocument, "empty"),
        ("half.docx", docx[: len(docx) // 2], UnreadableDocument, "truncated"),
        ("half.pdf", make_pdf("text")[:-300], UnreadableDocument, "truncated"),
        ("half.json", b'{"a": [1, 2', UnreadableDocument, "line 1, column 12"),
        ("locked.pdf", make_pdf("text", password="x"), UnreadableDocument, "password"),
        ("locked.docx", compound("EncryptedPackage", "EncryptionInfo"), UnreadableDocument, "password"),
        ("old.doc", compound("WordDocument"), UnsupportedMedia, r"before 2007 \(.doc\)"),
        ("flipped.docx", docx[:60] + b"\xff" * 8 + docx[68:], UnreadableDocument, "damaged"),
        ("understated.docx", understated(docx), UnreadableDocument, "damaged"),
        ("bomb.docx", repack(docx, **{"word/document.xml": inflated}), PayloadTooLarge, "unpacks to"),
        ("large.docx", repack(docx, **{"word/document.xml": crowded}), PayloadTooLarge, "memory"),
        ("deep.docx", repack(docx, **{"word/document.xml": nested}), UnreadableDocument, "nested"),
        ("laughs.docx", repack(docx, **word), UnreadableDocument, "DTD"),
        ("late.xlsx", repack(xlsx, **late), UnreadableDocument, "damaged"),
        ("xxe.docx", repack(docx, **{"docProps/core.xml": BOMB % (b"", b"<x/>")}), UnreadableDocument, "DTD"),
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, UnreadableDocument, "nested"),
        ("deep.md", b">" * 5000 + b" text", UnreadableDocument, "nested"),
        ("a.zip", archive(**{".hidden": b"text"}), UnreadableDocument, "no files"),
        ("a.odt", archive(mimetype=b"application/vnd.oasis.opendocument.text"), UnreadableDocument, "missing"),
        ("a.tar", tar()[:600], UnreadableDocument, "damaged|no files"),
        ("a.gz", gzip.compress(b"text", mtime=0), UnsupportedMedia, "GZIP"),
        ("lies.xlsx", docx, UnreadableDocument, "is a Word document"),
        ("lies.docx", make_pdf("text"), UnreadableDocument, "is a PDF"),
        ("lies.pptx", b"text", UnreadableDocument, "plain text"),
        ("nul.docx", bytes(5000), UnreadableDocument, "nothing but zero bytes"),
    ]  # fmt: skip


async def test_bad_files_fail_alone(parse: Parse, bad: list[Case], make_docx: MakeDocx) -> None:
    """Each of many bad files fails with its reason, and the good files among them are read."""
    good = make_docx("Good.")
    results = await asyncio.gather(
        *(parse(content, name) for name, content, _, _ in bad[:8]),
        return_exceptions=True,
    )
    for name, content, *_ in bad[8:]:
        results += await asyncio.gather(parse(content, name), parse(good, "good"), return_exceptions=True)
        assert results.pop() == "Good."
    for (name, _, error, message), result in zip(bad, results, strict=True):
        assert type(result) is error, (name, result)
        with pytest.raises(error, match=message):
            raise result


async def test_the_size_is_checked_before_reading(parse: Parse, tmp_path: Path) -> None:
    """500 MB of text are refused before they are read into memory."""
    path = tmp_path / "large"
    path.write_bytes(b"word " * 20_000)
    os.truncate(path, 500_000_000)
    for name in ("a.txt", "a.json", "a.csv", "a.py", "a.html"):
        with pytest.raises(PayloadTooLarge, match="20000000 characters"):
            await parse(path, name)


async def test_deep_and_wide_documents_are_read(parse: Parse, make_pdf: Callable[..., bytes]) -> None:
    """Very deep or wide documents are read if the parser does not need the stack for them."""
    assert await parse(b"<div>" * 10_000 + b"deep", "a.html") == "deep"
    assert await parse(b"<table><tr><td>" * 500 + b"deep", "a.html") == "deep"
    assert (await parse(b"(" * 100_000 + b"deep", "a.py")).endswith("deep")
    assert (await parse(b"{" * 50_000 + b"deep", "a.cpp")).endswith("deep")
    nested = make_pdf("deep").replace(b"/Type /Catalog", b"/Type /Catalog /X " + b"[" * 20_000 + b"]" * 20_000)
    assert await parse(nested, "a.pdf") == "deep"


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ("Grüße, 世界".encode("utf-16"), "a.txt", "Grüße, 世界"),
        (
            ("שלום עולם, מעבורת יוצאת בבוקר. " * 9).encode("cp1255"),
            "a.txt",
            ("שלום עולם, מעבורת יוצאת בבוקר. " * 9).strip(),
        ),
        ("name;town\nBjörn;Åbo\n".encode("latin-1"), "a.csv", "name: Björn; town: Åbo"),
        ("a\0b".encode("utf-8-sig"), "a.txt", "ab"),
        ('{"ключ": "значение\\u0000"}'.encode(), "a.json", "ключ: значение"),
        ("مرحبا بالعالم\u200f!".encode(), "a.md", "مرحبا بالعالم\u200f!"),
        ("渡轮每天早上八点出发。".encode("gb18030") * 9, "a.txt", "渡轮每天早上八点出发。" * 9),
    ],
)
def test_encodings_and_scripts(read: Read, content: bytes, name: str, expected: str) -> None:
    """Text in any encoding and direction is read correctly, without invisible characters."""
    _, [page] = read(content, name)
    assert "\n".join(section.text for section in page.sections) == expected


async def test_names_and_scripts(parse: Parse, make_docx: MakeDocx, make_xlsx: MakeDocx) -> None:
    """A name may contain any character. Right-to-left and Chinese text is unchanged, also in Office documents."""
    assert await parse(b"# T\n\nx", "reports/2024\nfinal/odd name.md") == "T\n\nx"
    assert await parse(b"x = 1", "weird/..\n/a.py") == "x = 1"
    document, sheet = (
        make_docx("שלום עולם", "渡轮每天早上八点出发。"),
        make_xlsx(数据=[["名称", "座位"], ["海燕", 420]]),
    )
    assert await parse(document, "a") == "שלום עולם\n\n渡轮每天早上八点出发。"
    assert await parse(sheet, "数据/a\n.xlsx") == "数据\n\n名称: 海燕; 座位: 420"


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx"])
def test_damage_anywhere_is_a_refusal_or_text(
    read: Read, make_docx: MakeDocx, make_xlsx: MakeDocx, name: str
) -> None:
    """Damage at any position of an Office document results in text or a refusal, but no other error."""
    content = make_docx("# A", "b") if name == "a.docx" else make_xlsx(S=[["a", "b"], [1, 2]])
    dice = random.Random(7)
    for _ in range(40):
        damaged = bytearray(content)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(content))] = dice.randrange(256)
        with contextlib.suppress(Refusal):
            read(bytes(damaged), name)

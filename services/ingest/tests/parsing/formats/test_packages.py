"""OpenDocument and EPUB."""

# ruff: noqa: E501  # XML in one piece

import io
import zipfile
from collections.abc import Callable

import pytest
from ingest.parsing.content import Head, Omission, Page, Part
from ingest.parsing.refusals import TooLarge, Unreadable

ReadParts = Callable[..., list[Part]]
_ODF = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "svg": "svg-compatible",
        "presentation": "presentation",
    }.items()
)


def package(kind: str, **parts: str) -> bytes:
    """Return a package; in names of parts, ``__`` is a slash and ``_`` a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", kind, zipfile.ZIP_STORED)
        for name, content in parts.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return buffer.getvalue()


def open_document(kind: str, body: str, **parts: str) -> bytes:
    content = f"<office:document-content {_ODF}><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    return package(f"application/vnd.oasis.opendocument.{kind}", content_xml=content, **parts)


def texts(parts: list[Part]) -> list[list[str]]:
    return [[section.text for section in part.sections] for part in parts if isinstance(part, Page)]


CELL = "<table:table-cell><text:p>{}</text:p></table:table-cell>"


def row(*cells: str, repeated: int = 1) -> str:
    inner = "".join(CELL.format(cell) for cell in cells)
    return f'<table:table-row table:number-rows-repeated="{repeated}">{inner}</table:table-row>'


def test_a_text(read_parts: ReadParts) -> None:
    """Headings, lists, tables and notes are read. Deleted text, comments and tables of contents are not."""
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:table-of-content><text:p>toc</text:p>"
        '</text:table-of-content><text:h text:outline-level="1">Ferries</text:h>'
        "<text:p>At<text:s/>nine<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>Or ten.</text:p>"
        "</text:note-body></text:note>, <text:span>daily</text:span>.<office:annotation><text:p>why</text:p></office:annotation></text:p>"
        "<text:list><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>inner</text:p></text:list-item>"
        "</text:list></text:list-item></text:list>"
        f"<table:table>{row('Vessel', 'Seats')}{row('Petrel', '420')}</table:table>"
    )
    meta = '<m xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:language>en-GB</dc:language></m>'
    head, *pages = read_parts(open_document("text", body, meta_xml=meta), "a.odt")
    assert head == Head("application/vnd.oasis.opendocument.text", 0, "en-GB")
    assert texts(pages) == [
        ["Ferries\n\nAt nine, daily.\n[1] Or ten.\n- one\n  - inner\n\nVessel: Petrel; Seats: 420"],
    ]


def test_sheets(read_parts: ReadParts) -> None:
    """Each sheet is a page. Repeated rows are read, but a million blank rows become one."""
    first = f"{row('Vessel', 'Seats')}{row('Petrel', '420', repeated=2)}{row('', repeated=1_000_000)}"
    body = f'<table:table table:name="Fleet">{first}</table:table><table:table table:name="Empty"/>'
    head, *pages = read_parts(open_document("spreadsheet", body), "a.ods")
    assert isinstance(head, Head)
    assert head.page_count == 2
    line = "Vessel: Petrel; Seats: 420"
    assert texts(pages)[0] == [f"Fleet\n\n{line}\n{line}"]
    bomb = f'<table:table table:name="Fleet">{row("x" * 100, "y", repeated=1_000_000_000)}</table:table>'
    with pytest.raises(TooLarge):
        read_parts(open_document("spreadsheet", bomb), "a.ods")


def test_columns_after_the_limit(read_parts: ReadParts) -> None:
    """Text in a column after the thousandth causes one omission for each page. Blank formatted cells do not."""
    blank = '<table:table-cell table:number-columns-repeated="{}"/>'
    wide = f"<table:table-row>{CELL.format('near')}{blank.format(999)}{CELL.format('far')}</table:table-row>"
    formatted = f"<table:table-row>{CELL.format('near')}{blank.format(16_383)}</table:table-row>"
    body = f"<table:table>{formatted}</table:table><table:table>{wide}{wide}</table:table>"
    head, first, second, omission = read_parts(open_document("spreadsheet", body), "a.ods")
    assert texts([head, first, second]) == [["near"], ["near\nnear"]]
    limit = "Further columns of a table were not read. The limit is 1000 columns."
    assert omission == Omission("TooLarge", limit, 2)
    *_, omission = read_parts(open_document("text", f"<table:table>{wide}</table:table>"), "a.odt")
    assert omission == Omission("TooLarge", limit, 0)


def test_a_box_in_a_box_is_read_once(read_parts: ReadParts) -> None:
    """A text box and a note in another text box of a paragraph are read once, after the outer box."""
    note = "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>low</text:p></text:note-body></text:note>"
    box = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    body = f"<text:p>Tides{box.format('outer' + box.format('inner' + note))}</text:p>"
    [section] = texts(read_parts(open_document("text", body), "a.odt"))[0]
    assert section.split() == ["Tides", "outer", "inner", "[1]", "low"]


def test_shapes_with_text(read_parts: ReadParts) -> None:
    """Each paragraph of a shape is a block, also within a group. The shapes of a paragraph follow it."""
    shape = "<draw:{0}><text:p>{1}</text:p><text:p>{2}</text:p></draw:{0}>"
    group = f"<draw:g>{shape.format('custom-shape', 'Cast off', 'bow first')}{shape.format('rect', 'Sail', 'north')}</draw:g>"
    lines = ["Cast off", "bow first", "Sail", "north"]
    slide = texts(read_parts(open_document("presentation", f"<draw:page>{group}</draw:page>"), "a.odp"))
    assert slide == [["\n\n".join(lines)]]
    text = texts(read_parts(open_document("text", f"<text:p>Ferries{group}</text:p>"), "a.odt"))
    assert text == [["\n\n".join(["Ferries", *lines])]]


def test_slides(read_parts: ReadParts) -> None:
    """Each slide is a page: the title, the boxes from top to bottom, the notes."""
    box = '<draw:frame svg:y="{}cm" {}><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>'
    title = 'presentation:class="title"'
    notes = "<presentation:notes><draw:frame><draw:text-box><text:p>Slowly.</text:p></draw:text-box></draw:frame></presentation:notes>"
    body = f"<draw:page>{box.format(9, '', 'below')}{box.format(2, '', 'above')}{box.format(20, title, 'Ferries')}{notes}</draw:page>"
    assert texts(read_parts(open_document("presentation", body), "a.odp")) == [
        ["Ferries\n\nabove\n\nbelow\n\nNotes: Slowly."]
    ]


def test_an_encrypted_document_is_refused(read_parts: ReadParts) -> None:
    """The refusal says that the document is encrypted, or that its name suggests another format."""
    manifest = {"META-INF__manifest_xml": "<m:encryption-data/>"}
    with pytest.raises(Unreadable, match="encrypted"):
        read_parts(open_document("text", "", **manifest), "a.odt")
    with pytest.raises(Unreadable, match="OpenDocument"):
        read_parts(open_document("text", "<text:p>x</text:p>"), "a.docx")


CONTAINER = '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
BOOK = """<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>Tides</dc:title><dc:language>en</dc:language>
</metadata><manifest><item id="n" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>
<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/><item id="a" href="one.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="three.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>"""
CHAPTER = "<html><head><title>x</title></head><body><h1>{}</h1><p>{}</p></body></html>"


def book(**parts: str) -> bytes:
    return package("application/epub+zip", **{"META-INF__container_xml": CONTAINER, "OPS__book_opf": BOOK, **parts})


def test_a_book(read_parts: ReadParts) -> None:
    """Chapters follow the order of the spine, below the book's title. A missing chapter is an omission."""
    content = book(
        OPS__nav_xhtml=CHAPTER.format("Contents", "One"),
        OPS__one_xhtml=CHAPTER.format("High water", "At six."),
        OPS__two_xhtml=CHAPTER.format("Low water", "At noon."),
    )
    head, page, omission = read_parts(content, "a.epub")
    assert head == Head("application/epub+zip", language="en")
    assert isinstance(page, Page)
    assert [(section.headings, section.text) for section in page.sections] == [
        (("Tides", "High water"), "Tides\nHigh water\n\nAt six."),
        (("Tides", "Low water"), "Low water\n\nAt noon."),
    ]
    assert omission == Omission("Unreadable", "The chapter is missing from the book.", part="OPS/three.xhtml")


def test_a_protected_or_damaged_book_is_refused(read_parts: ReadParts) -> None:
    """The refusal says that the book is protected or damaged."""
    protected = {"META-INF__encryption_xml": '<x URI="OPS/one.xhtml"/>'}
    with pytest.raises(Unreadable, match="protected"):
        read_parts(book(**protected), "a.epub")
    with pytest.raises(Unreadable, match="no text"):
        read_parts(book(OPS__one_xhtml="<html><body><img/></body></html>"), "a.epub")
    with pytest.raises(Unreadable, match="missing"):
        read_parts(package("application/epub+zip"), "a.epub")

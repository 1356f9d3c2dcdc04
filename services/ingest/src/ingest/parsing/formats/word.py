"""Word (DOCX): headings by style, list numbers as in Word, table rows, and footnotes below their references.

The parser leaves out invisible content (deletions, hidden text, field codes). It also leaves out tables of
contents, headers and footers, because they repeat other text.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docx
from docx.document import Document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml import parse_xml
from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing import containers
from ingest.parsing.content import Head, Page, Part, Scan, Section
from ingest.parsing.frames import Request
from ingest.parsing.office import charts, ooxml
from ingest.parsing.office.numbering import Numbers, W, value_of
from ingest.parsing.office.pictures import DocumentPictures
from ingest.parsing.refusals import Unreadable
from ingest.parsing.scans import ScanMode
from ingest.parsing.text.clean import collapse, flat, language_tag
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import rows

_MAIN_PARTS = (b"wordprocessingml.document.main+xml",)
_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}chart"
_REFERENCE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_HEADING = re.compile(r"heading ([1-9])")
"""The name of a heading's style, in lower case."""
_CHARACTERS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}
_INVISIBLE = frozenset(
    (
        *(W + name for name in ("del", "moveFrom", "instrText", "pPr", "rPr", "sdtPr", "delText", "rt")),
        f"{_MC}Fallback",
    )
)
_NOTES = {
    f"{W}footnoteReference": RELATIONSHIP_TYPE.FOOTNOTES,
    f"{W}endnoteReference": RELATIONSHIP_TYPE.ENDNOTES,
}
_CONTAINERS = frozenset(
    W + name for name in ("sdtContent", "ins", "moveTo", "customXml", "smartTag", "tc", "txbxContent")
)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the main part of a package is a Word document without macros (ECMA-376 part 1, 11.3.10)."""
    return containers.has_main_part(path, head, *_MAIN_PARTS)


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the single page of a Word document, then its pictures.

    Raises:
        Unreadable: The document is damaged, or has neither text nor pictures for OCR.
        Unsupported: The document is Strict Open XML; see `ooxml.check`.
        TooLarge: The document is too large for ``memory`` when unpacked.
    """
    path = Path(request.path)
    ooxml.check(path, request.memory)
    with ooxml.damage_is_unreadable("The Word document"):
        document = docx.Document(str(path))
        language = str(next(iter(document.styles.element.xpath("w:docDefaults//w:lang/@w:val")), ""))
        sections = _Body(document).sections()
        images = list(DocumentPictures(ScanMode(request.scans)).scans(document.part, 0))
    if not sections and not any(isinstance(image, Scan) for image in images):
        raise Unreadable("The document has no text.")
    yield Head(_MEDIA_TYPE, language=language_tag(language))
    yield Page(0, sections)
    yield from images


@dataclass(slots=True)
class _Style:
    """The properties of a paragraph style, merged with those of its base style.

    Attributes:
        level: The level of a heading, 0 for the title; None for other paragraphs.
        list_id: The id of the list; empty outside a list.
        depth: The level within the list, from 0.
        is_contents: Whether the paragraph belongs to a table of contents or of figures.
    """

    level: int | None = None
    list_id: str = ""
    depth: int = 0
    is_contents: bool = False


@dataclass(slots=True)
class _OtherContent:
    """The content of a paragraph besides its text.

    Attributes:
        notes: For each reference to a note: its number, the type of the part with the note, and the id of the note.
        boxes: The contents of text boxes.
        charts: The ids of the relationships to charts.
    """

    notes: list[tuple[int, str, str]]
    boxes: list[etree._Element]
    charts: list[str]


class _Body:
    """Visits a document's body and fills an outline."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._outline = Outline()
        self._styles = _styles(document)
        self._numbers = Numbers(self._related(RELATIONSHIP_TYPE.NUMBERING))
        self._notes: dict[str, dict[str, etree._Element]] = {}
        self._note_count = 0
        self._in_list = False

    def sections(self) -> tuple[Section, ...]:
        """Return the document's sections."""
        self._blocks(self._document.element.body)
        return self._outline.end_page()

    def _blocks(self, container: etree._Element) -> None:
        for child in container:
            tag = child.tag
            if tag == f"{W}p":
                self._paragraph(child)
            elif tag == f"{W}tbl":
                self._table(child)
            elif tag == f"{W}sdt":
                gallery = child.find(f"{W}sdtPr/{W}docPartObj/{W}docPartGallery")
                if gallery is None or gallery.get(f"{W}val") != "Table of Contents":
                    self._blocks(child)
            elif tag in _CONTAINERS or tag in (f"{_MC}AlternateContent", f"{_MC}Choice"):
                self._blocks(child)

    def _paragraph(self, paragraph: etree._Element) -> None:
        style = self._style_of(paragraph)
        if style.is_contents:
            return
        other = _OtherContent([], [], [])
        text = self._text(paragraph, other)
        marker = self._marker(paragraph, style, text)
        if not text.strip():
            marker = ""  # a number without text is only counted
        elif style.level is not None:
            self._outline.heading(style.level, flat(f"{marker} {text}" if marker != "-" else text))
        else:
            line = f"{'  ' * style.depth}{marker} {collapse(text)}" if marker else collapse(text)
            self._outline.block(line, tight=bool(marker) and self._in_list)
        self._in_list = bool(marker) and style.level is None
        self._add_other_content(other)

    def _marker(self, paragraph: etree._Element, style: _Style, text: str) -> str:
        """Count a paragraph if it is in a list, and return its number or bullet; otherwise an empty string.

        Word also numbers an empty paragraph, unless its paragraph mark is invisible. The bullet of an empty
        paragraph is left out.
        """
        if not style.list_id or (not text.strip() and _has_invisible_mark(paragraph)):
            return ""
        marker = self._numbers.marker(style.list_id, style.depth)
        return marker if text.strip() or marker != "-" else ""

    def _add_other_content(self, other: _OtherContent) -> None:
        for number, kind, note_id in other.notes:
            note = self._note(kind, note_id)
            if note is not None:
                self._outline.block(f"[{number}] {flat(self._text(note, _OtherContent([], [], [])))}")
        for box in other.boxes:
            self._blocks(box)
        for reference in other.charts:
            chart = parse_xml(self._document.part.related_parts[reference].blob)
            self._outline.rows(charts.lines(chart))

    def _style_of(self, paragraph: etree._Element) -> _Style:
        properties = paragraph.find(f"{W}pPr")
        style_id = value_of(properties, "pStyle") if properties is not None else ""
        style = self._styles.get(style_id) or self._styles.get("") or _Style()
        return style if properties is None else _merged(properties, style)

    def _text(self, element: etree._Element, other: _OtherContent) -> str:
        """Return the visible text of an element, and add its other content to ``other``."""
        parts: list[str] = []
        for child in element:
            tag = child.tag
            if tag in (f"{W}t", f"{_M}t"):
                parts.append(child.text or "")
            elif tag in _CHARACTERS:
                parts.append(_CHARACTERS[tag])
            elif tag in _NOTES:
                self._note_count += 1
                other.notes.append((self._note_count, _NOTES[tag], child.get(f"{W}id", "")))
                parts.append(f"[{self._note_count}]")
            elif tag == f"{W}txbxContent":
                other.boxes.append(child)
            elif tag == _CHART:
                other.charts.append(child.get(_REFERENCE, ""))
            elif isinstance(tag, str) and tag not in _INVISIBLE and not (tag == f"{W}r" and _is_hidden(child)):
                text = self._text(child, other)
                if tag == f"{W}p":  # of a cell or a note
                    text = f"{self._marker(child, self._style_of(child), text)} {text}\n"
                parts.append(text)
        return "".join(parts)

    def _note(self, kind: str, note_id: str) -> etree._Element | None:
        if kind not in self._notes:
            part = self._related(kind)
            self._notes[kind] = {} if part is None else {note.get(f"{W}id", ""): note for note in part}
        return self._notes[kind].get(note_id)

    def _related(self, kind: str) -> etree._Element | None:
        """Return the root of a related part, or None."""
        try:
            return parse_xml(self._document.part.part_related_by(kind).blob)
        except KeyError:
            return None

    def _table(self, table: etree._Element) -> None:
        table_rows = [row for row in table.iter(f"{W}tr") if _table_of(row) is table]
        if len(table_rows) < 2 or max(map(_width, table_rows)) < 2:  # a table for layout
            for cell in itertools.chain.from_iterable(map(_cells_of, table_rows)):
                self._blocks(cell)
            return
        grid: list[list[str]] = []
        other = _OtherContent([], [], [])
        for row in table_rows:
            grid.append(self._cells(row, grid[-1] if grid else [], other))
        count = max(1, sum(row.find(f"{W}trPr/{W}tblHeader") is not None for row in table_rows))
        look = table.find(f"{W}tblPr/{W}tblLook")
        if look is not None and look.get(f"{W}firstRow") == "0" and count == 1:
            count = 0
        count = min(count, len(grid) - 1)
        header = [
            " ".join(dict.fromkeys(filter(None, column))) for column in zip(*_padded(grid[:count]), strict=True)
        ]
        self._outline.rows(rows(header, [cells for cells in grid[count:] if any(cells)]))
        self._in_list = False
        self._add_other_content(other)

    def _cells(self, row: etree._Element, above: list[str], other: _OtherContent) -> list[str]:
        """Return a row's texts by grid column, and add the other content of the cells to ``other``.

        A cell that is merged with the cell above repeats its text. The text of a cell that spans several columns is
        in the first of them.
        """
        cells: list[str] = []
        for cell in _cells_of(row):
            merge = cell.find(f"{W}tcPr/{W}vMerge")
            column = len(cells)
            if merge is not None and merge.get(f"{W}val") != "restart" and column < len(above):
                cells.append(above[column])
            else:
                cells.append(flat(self._text(cell, other)))
            cells += [""] * (_span(cell) - 1)
        return cells


def _styles(document: Document) -> dict[str, _Style]:
    """Return the styles by id. The default paragraph style also has the empty id."""
    elements = {style.style_id: style.element for style in document.styles if style.style_id}
    styles: dict[str, _Style] = {}
    for style_id in elements:
        chain, ancestor_id = [], style_id
        while ancestor_id in elements and elements[ancestor_id] not in chain:
            chain.append(elements[ancestor_id])
            ancestor_id = value_of(elements[ancestor_id], "basedOn")
        style = _Style()
        for element in reversed(chain):
            name = value_of(element, "name").lower()
            heading = _HEADING.fullmatch(name)
            if heading or name == "title":
                style.level = int(heading[1]) if heading else 0
            style.is_contents = style.is_contents or name.startswith(("toc ", "table of figures"))
            properties = element.find(f"{W}pPr")
            style = style if properties is None else _merged(properties, style)
        styles[style_id] = style
        if elements[style_id].get(f"{W}default") == "1" and elements[style_id].get(f"{W}type") == "paragraph":
            styles[""] = style
    return styles


def _merged(properties: etree._Element, style: _Style) -> _Style:
    """Return a style with the overrides of ``w:pPr``."""
    merged = _Style(style.level, style.list_id, style.depth, style.is_contents)
    level = value_of(properties, "outlineLvl")
    if level:
        merged.level = int(level) + 1 if int(level) < 9 else None  # 9: body text (17.3.1.20)
    numbered = properties.find(f"{W}numPr")
    if numbered is not None:
        list_id = value_of(numbered, "numId")
        merged.list_id = "" if list_id == "0" else list_id or merged.list_id
        depth = value_of(numbered, "ilvl")
        merged.depth = min(int(depth), 8) if depth else merged.depth
    return merged


def _is_hidden(run: etree._Element) -> bool:
    vanish = run.find(f"{W}rPr/{W}vanish")
    return vanish is not None and vanish.get(f"{W}val", "1") not in ("0", "false", "off")


def _has_invisible_mark(paragraph: etree._Element) -> bool:
    """Return whether the paragraph mark, whose properties are in ``w:pPr/w:rPr``, is hidden, deleted or moved."""
    properties = paragraph.find(f"{W}pPr")
    if properties is None:
        return False
    return _is_hidden(properties) or any(
        properties.find(f"{W}rPr/{W}{name}") is not None for name in ("del", "moveFrom")
    )


def _table_of(element: etree._Element) -> etree._Element | None:
    return next(element.iterancestors(f"{W}tbl"), None)


def _cells_of(row: etree._Element) -> list[etree._Element]:
    """Return the cells of a row, without those of tables within it."""
    table = _table_of(row)
    return [cell for cell in row.iter(f"{W}tc") if _table_of(cell) is table]


def _width(row: etree._Element) -> int:
    """Return the number of grid columns of a row."""
    return sum(map(_span, _cells_of(row)))


def _span(cell: etree._Element) -> int:
    """Return the number of grid columns of a cell."""
    properties = cell.find(f"{W}tcPr")
    span = value_of(properties, "gridSpan") if properties is not None else ""
    return max(1, min(int(span), 1000)) if span else 1


def _padded(grid: list[list[str]]) -> list[list[str]]:
    """Return the rows of a grid, all with the same number of cells."""
    width = max(map(len, grid), default=0)
    return [[*cells, *[""] * (width - len(cells))] for cells in grid]

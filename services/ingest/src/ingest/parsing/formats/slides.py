"""PowerPoint (PPTX): a page for each slide, with title, text, tables, charts, diagrams and notes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pptx
from lxml import etree  # type: ignore[import-untyped]  # ships no types
from pptx.enum.shapes import PP_PLACEHOLDER
from pptx.oxml import parse_xml

from ingest.parsing import containers
from ingest.parsing.content import Head, Omission, Page, Part, Scan
from ingest.parsing.frames import Request
from ingest.parsing.office import charts, ooxml
from ingest.parsing.office.boxes import Box, reading_order
from ingest.parsing.office.pictures import DocumentPictures
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.scans import ScanMode
from ingest.parsing.text.clean import collapse, flat, language_tag
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import rows

_MAIN_PARTS = (b"presentationml.presentation.main+xml", b"ms-powerpoint.presentation.macroEnabled.main+xml")
_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_DIAGRAM_DATA = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_REPEATED = frozenset(
    (PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.HEADER)
)
_TITLES = frozenset((PP_PLACEHOLDER.TITLE, PP_PLACEHOLDER.CENTER_TITLE, PP_PLACEHOLDER.VERTICAL_TITLE))


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the main part of a package is a presentation (ECMA-376 part 1, 13.3.6; MS-OFFMACRO2)."""
    return containers.has_main_part(path, head, *_MAIN_PARTS)


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the slides of a presentation, each with its pictures; hidden slides have no text.

    Raises:
        Unreadable: The presentation is damaged, or has neither text nor pictures for OCR.
        Unsupported: The presentation is Strict Open XML; see `ooxml.check`.
        TooLarge: The presentation has more than ``max_pages`` slides, or is too large for ``memory`` when unpacked.
    """
    path = Path(request.path)
    ooxml.check(path, request.memory)
    with ooxml.damage_is_unreadable("The presentation"):
        slides = list(pptx.Presentation(str(path)).slides)
    if len(slides) > request.max_pages:
        raise TooLarge(f"The presentation has {len(slides)} slides. The limit is {request.max_pages} slides.")
    yield Head(_MEDIA_TYPE, len(slides), _language(slides))
    is_empty, pictures = True, DocumentPictures(ScanMode(request.scans))
    for number, slide in enumerate(slides, 1):
        outline, images = Outline(), list[Scan | Omission]()
        if slide.element.get("show", "1") not in ("0", "false"):
            with ooxml.damage_is_unreadable(f"Slide {number} of the presentation"):
                _fill(outline, slide)
                images += pictures.scans(slide.part, number)
        sections = outline.end_page()
        is_empty = is_empty and not sections and not any(isinstance(image, Scan) for image in images)
        yield Page(number, sections)
        yield from images
    if is_empty:
        raise Unreadable("The presentation has no text: its slides are pictures, hidden or empty.")


def _language(slides: list[Any]) -> str:
    """Return the language of the first text that declares one."""
    for slide in slides:
        for properties in slide.element.iter(f"{_A}rPr"):
            if language := language_tag(str(properties.get("lang", ""))):
                return language
    return ""


def _fill(outline: Outline, slide: Any) -> None:
    title = slide.shapes.title
    if title is not None:
        outline.heading(1, flat(title.text_frame.text))
    pending = _reversed(slide.shapes)
    while pending:
        shape = pending.pop()
        if hasattr(shape, "shapes"):  # a group
            pending += _reversed(shape.shapes)
        elif getattr(shape, "has_table", False):
            _table(outline, shape.table)
        elif getattr(shape, "has_chart", False):
            outline.rows(charts.lines(shape.chart.element))
        elif shape.has_text_frame:
            _text(outline, shape)
        else:
            _diagram(outline, slide, shape)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = collapse(slide.notes_slide.notes_text_frame.text)
        outline.block(f"Notes: {notes}" if notes else "")


def _reversed(shapes: Any) -> list[Any]:
    """Return the shapes that may have text, in reverse reading order."""
    with_text = [shape for shape in shapes if not shape.has_text_frame or shape.text_frame.text.strip()]
    bounds = [(shape.left, shape.top, shape.width, shape.height) for shape in with_text]
    if any(length is None for bound in bounds for length in bound):
        return with_text[::-1]
    boxes = [Box(left, top, left + width, top + height) for left, top, width, height in bounds]
    return [with_text[index] for index in reversed(reading_order(boxes))]


def _text(outline: Outline, shape: Any) -> None:
    kind = shape.placeholder_format.type if shape.is_placeholder else None
    if kind in _REPEATED or kind in _TITLES:
        return
    paragraphs = [paragraph for paragraph in shape.text_frame.paragraphs if paragraph.text.strip()]
    listed = len(paragraphs) > 1 and kind in (PP_PLACEHOLDER.BODY, PP_PLACEHOLDER.OBJECT)
    for number, paragraph in enumerate(paragraphs):
        marker = "  " * paragraph.level + "- " if listed else ""
        outline.block(marker + collapse(paragraph.text), tight=number > 0)


def _table(outline: Outline, table: Any) -> None:
    grid = [
        [_cell(table, cell, row, column) for column, cell in enumerate(line.cells)]
        for row, line in enumerate(table.rows)
    ]
    count = 1 if table.first_row and len(grid) > 1 else 0
    header = grid[0] if count else []
    outline.rows(rows(header, [cells for cells in grid[count:] if any(cells)]))


def _cell(table: Any, cell: Any, row: int, column: int) -> str:
    """Return a cell's text. A cell merged with the cell above repeats that text. A cell merged to the left is
    empty.
    """
    while cell.is_spanned and row > 0 and cell._tc.vMerge:  # the library has no public access to the origin
        row -= 1
        cell = table.cell(row, column)
    return "" if cell.is_spanned else flat(cell.text)


def _diagram(outline: Outline, slide: Any, shape: Any) -> None:
    """Add the texts of SmartArt, one for each line."""
    for reference in shape.element.iter(f"{_DIAGRAM}relIds"):
        data: etree._Element = parse_xml(slide.part.related_part(reference.get(_DIAGRAM_DATA)).blob)
        points = ("".join(text.text or "" for text in point.iter(f"{_A}t")) for point in data.iter(f"{_DIAGRAM}pt"))
        for number, line in enumerate(filter(None, map(flat, points))):
            outline.block(f"- {line}", tight=number > 0)

"""Adds the elements of OpenDocument to an outline."""

import re
from collections.abc import Iterator, Sequence

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.content import Omission
from ingest.parsing.refusals import TooLarge
from ingest.parsing.text.clean import collapse, flat
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import rows as labelled

_NAMESPACE = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
OFFICE, TABLE, DRAW, TEXT, PRESENTATION = (
    _NAMESPACE % name for name in ("office", "table", "drawing", "text", "presentation")
)
_SKIPPED = frozenset(
    (
        TEXT + "tracked-changes",
        TEXT + "table-of-content",
        TEXT + "alphabetical-index",
        TEXT + "bibliography",
        TEXT + "sequence-decls",
        TEXT + "note",
        OFFICE + "annotation",
        OFFICE + "forms",
        TABLE + "table",
        TEXT + "list",
    )
)
"""Elements within a paragraph that are not part of its text. Frames and shapes are not part of it either."""
_MAX_COLUMNS = 1000
"""Maximum number of columns. Further columns are left out, because formatted cells often fill a whole row."""
_PARAGRAPHS = (TEXT + "p", TEXT + "h")


def fill(outline: Outline, body: etree._Element, indent: int = -1, marker: str = "") -> None:
    """Add the content of a text, a section, a list item, a frame or a shape to an outline.

    Args:
        outline: The outline.
        body: The element with the paragraphs.
        indent: Depth of the list, from 0; -1 outside a list.
        marker: Marker of the first paragraph of an item.
    """
    for child in body:
        match child.tag:
            case tag if tag == TEXT + "h":
                outline.heading(int(child.get(TEXT + "outline-level", "1")), flat(own_text(child)))
                _fill_inner(outline, child)
            case tag if tag == TEXT + "p":
                text = collapse(own_text(child))
                prefix = "  " * max(indent, 0) + (marker or "  " * (indent >= 0))
                outline.block(prefix + text if text else "", tight=indent >= 0)
                marker = "" if text else marker
                _fill_inner(outline, child)
            case tag if tag == TEXT + "list":
                for item in child.iterchildren(TEXT + "list-item", TEXT + "list-header"):
                    fill(outline, item, indent + 1, "- ")
            case tag if tag == TABLE + "table":
                fill_table(outline, child)
            case tag if tag in (TEXT + "section", TEXT + "note-body") or _is_drawing(child):
                fill(outline, child)
            case _:
                pass


def _fill_inner(outline: Outline, paragraph: etree._Element) -> None:
    """Add the notes, the frames and the shapes of a paragraph, after the paragraph.

    The call of `fill` for a frame or a shape also adds the notes, frames and shapes within it.
    """
    drawings = list(paragraph.iter(DRAW + "*"))
    inner = {element for drawing in drawings for element in drawing.iterdescendants()}
    for note in paragraph.iter(TEXT + "note"):
        if note in inner:
            continue
        citation = "".join(note.xpath("string(*[local-name()='note-citation'])"))
        text = " ".join(collapse(own_text(element)) for element in note.iter(TEXT + "p"))
        outline.block(f"[{citation}] {text}" if text else "", tight=True)
    for drawing in drawings:
        if drawing not in inner:
            fill(outline, drawing)


def _is_drawing(element: etree._Element) -> bool:
    """Return whether an element is a frame, a text box, a shape, or a group of them."""
    return isinstance(element.tag, str) and element.tag.startswith(DRAW)


def own_text(element: etree._Element) -> str:
    """Return the text of a paragraph with spaces and line breaks, without notes, comments, frames and shapes."""
    parts = [element.text or ""]
    for child in element:
        if child.tag == TEXT + "s":
            parts.append(" ")
        elif child.tag == TEXT + "tab":
            parts.append("\t")
        elif child.tag == TEXT + "line-break":
            parts.append("\n")
        elif child.tag not in _SKIPPED and isinstance(child.tag, str) and not _is_drawing(child):
            parts.append(own_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def fill_table(outline: Outline, table: etree._Element) -> None:
    """Add a table to an outline, one line for each row.

    If the table has several rows and no header rows, the first row is the header.
    """
    heads = [_cells(row) for group in table.iter(TABLE + "table-header-rows") for row in group]
    lines = [
        _cells(row) for row in table.iter(TABLE + "table-row") if row.getparent().tag != TABLE + "table-header-rows"
    ]
    if not heads and len(lines) > 1:
        heads, lines = lines[:1], lines[1:]
    width = max(map(len, [*heads, *lines]), default=0)
    header = [flat(" ".join(row[at] for row in heads if at < len(row))) for at in range(width)]
    outline.rows(labelled(header, [line for line in lines if any(line)]))


def rows_of(table: etree._Element, max_characters: int) -> Iterator[Sequence[str]]:
    """Yield the rows of a sheet as text. Blank rows at the top are left out. Consecutive blank rows become one.

    Raises:
        TooLarge: The rows have more characters than the limit.
    """
    characters, blank = 0, True
    for row in table.iter(TABLE + "table-row"):
        cells = _cells(row)
        repetitions = int(row.get(TABLE + "number-rows-repeated", "1"))
        if not any(cells):
            if not blank:
                yield ()
            blank = True
            continue
        blank = False
        for _ in range(repetitions):
            characters += sum(map(len, cells))
            if characters > max_characters:
                raise TooLarge.characters(max_characters)
            yield cells


def omissions(body: etree._Element, number: int) -> Iterator[Omission]:
    """Yield an omission if a row of a text, a sheet or a slide has text in a column that is left out.

    Args:
        body: The element with the rows.
        number: The number of the page, from 1; 0 for a text.
    """
    for row in body.iter(TABLE + "table-row"):
        end = 0
        for cell, repetitions in _columns(row):
            end += repetitions
            if end > _MAX_COLUMNS and _text_of(cell):
                message = f"Further columns of a table were not read. The limit is {_MAX_COLUMNS} columns."
                yield Omission("TooLarge", message, number)
                return


def _columns(row: etree._Element) -> Iterator[tuple[etree._Element, int]]:
    """Yield the cells of a row, each with the number of columns that have its content."""
    for cell in row.iterchildren(TABLE + "table-cell", TABLE + "covered-table-cell"):
        yield cell, int(cell.get(TABLE + "number-columns-repeated", "1"))


def _text_of(cell: etree._Element) -> str:
    return flat(" ".join(own_text(element) for element in cell.iter(*_PARAGRAPHS)))


def _cells(row: etree._Element) -> list[str]:
    cells: list[str] = []
    for cell, repetitions in _columns(row):
        cells += [_text_of(cell)] * min(repetitions, _MAX_COLUMNS - len(cells))
    while cells and not cells[-1]:
        cells.pop()
    return cells


def fill_slide(outline: Outline, slide: etree._Element) -> None:
    """Add a slide to an outline: the title, boxes from top to bottom, notes."""
    frames = [element for element in slide if element.tag not in (PRESENTATION + "notes", OFFICE + "forms")]
    titles = [element for element in frames if element.get(PRESENTATION + "class") == "title"]
    for title in titles:
        outline.heading(1, flat(" ".join(own_text(element) for element in title.iter(*_PARAGRAPHS))))
    for frame in sorted((element for element in frames if element not in titles), key=_position):
        if frame.get(PRESENTATION + "class") in ("header", "footer", "date-time", "page-number"):
            continue
        fill(outline, frame)
    texts = [
        flat(own_text(element)) for note in slide.iter(PRESENTATION + "notes") for element in note.iter(TEXT + "p")
    ]
    notes = " ".join(filter(None, texts))
    outline.block(f"Notes: {notes}" if notes else "")


def _position(frame: etree._Element) -> tuple[float, float]:
    """Return the distance from the top and from the left, in centimetres."""
    svg = _NAMESPACE % "svg-compatible"
    return _length(frame.get(svg + "y", "")), _length(frame.get(svg + "x", ""))


def _length(text: str) -> float:
    found = re.fullmatch(r"(-?[\d.]+)(cm|mm|in|pt)", text)
    units = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72}
    return float(found[1]) * units[found[2]] if found else 0.0

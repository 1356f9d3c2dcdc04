from collections.abc import Callable
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from ingest.parsing.content import Head, Page, Section
from ingest.parsing.refusals import Unreadable

from ..conftest import Read, Repack, saved

MakeDocx = Callable[..., bytes]


def sections(read: Read, content: bytes) -> tuple[Section, ...]:
    _, [page] = read(content, "a.docx")
    return page.sections


def run(document: Any, inner: str) -> None:
    """Add a paragraph with WordprocessingML inside."""
    document.element.body.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{inner}</w:p>"))


def test_sections_by_heading(read: Read, make_docx: MakeDocx) -> None:
    """Each heading opens a section with its path. The title is the outermost heading."""
    document = docx.Document()
    document.add_heading("Handbook", 0)
    document.add_heading("Fares", 1)
    document.add_paragraph("Adults pay.")
    document.add_heading("Children", 2)
    document.add_paragraph("They travel free.")
    head, [page] = read(saved(document), "a.docx")
    assert head == Head("application/vnd.openxmlformats-officedocument.wordprocessingml.document", language="en-US")
    assert page == Page(
        0,
        (
            Section(("Handbook", "Fares"), "Handbook\nFares\n\nAdults pay."),
            Section(("Handbook", "Fares", "Children"), "Children\n\nThey travel free."),
        ),
    )


def test_headings_by_outline_level(read: Read) -> None:
    """A paragraph or a style of any name is a heading if it has an outline level, unless that is body text."""
    document = docx.Document()
    run(document, '<w:pPr><w:outlineLvl w:val="9"/></w:pPr><w:r><w:t>Plain.</w:t></w:r>')
    run(document, '<w:pPr><w:outlineLvl w:val="1"/></w:pPr><w:r><w:t>Own</w:t></w:r>')
    style = document.styles.add_style("Überschrift", 1)
    style.base_style = document.styles["Heading 1"]
    document.add_paragraph("Based", style="Überschrift")
    document.add_paragraph("Text.")
    assert [section.headings for section in sections(read, saved(document))] == [("Own",), ("Based",)]


def test_rows_have_column_names(read: Read) -> None:
    """Each row has the names of its columns and is not split. Merged cells appear in each of their rows."""
    document = docx.Document()
    table = document.add_table(rows=4, cols=3)
    for line, texts in zip(
        table.rows,
        (("Vessel", "Seats", "Note"), ("Petrel", "420", "Old. Slow."), ("", "300", ""), ("Both", "", "rest")),
        strict=True,
    ):
        for cell, text in zip(line.cells, texts, strict=True):
            cell.text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    table.cell(3, 0).merge(table.cell(3, 1))
    [section] = sections(read, saved(document))
    rows = [
        "Vessel: Petrel; Seats: 420; Note: Old. Slow.",
        "Vessel: Petrel; Seats: 300",
        "Vessel: Both; Note: rest",
    ]
    assert section.text == "\n".join(rows)
    assert [section.text[start:end] for start, end in section.whole] == rows


def test_tables_without_a_header_and_for_layout(read: Read) -> None:
    """A table whose first row is marked as an ordinary row has no header. A table of one column is text."""
    document = docx.Document()
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 0).text = "a", "b", "c"
    table._tbl.tblPr.find(qn("w:tblLook")).set(qn("w:firstRow"), "0")
    frame = document.add_table(rows=1, cols=1)
    frame.cell(0, 0).text = "Framed. Text."
    frame.cell(0, 0).add_table(rows=2, cols=2).cell(0, 0).text = "inner"
    frame.cell(0, 0).tables[0].cell(1, 1).text = "value"
    [section] = sections(read, saved(document))
    assert section.text == "a | b\nc\n\nFramed. Text.\n\nvalue\ninner"


def test_cells_in_content_controls_are_read(read: Read) -> None:
    """A content control may enclose a cell, in a table for layout, too."""
    document = docx.Document()
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "label", "value"
    cell = table.cell(0, 1)._tc
    control = parse_xml(f"<w:sdt {nsdecls('w')}><w:sdtPr/><w:sdtContent/></w:sdt>")
    cell.getparent().replace(cell, control)
    control[1].append(cell)
    [section] = sections(read, saved(document))
    assert section.text == "label\n\nvalue"


def test_lists_have_the_markers_that_word_shows(read: Read) -> None:
    """Bullets and numbers are part of the text. The items of a list follow each other without blank lines."""
    document = docx.Document()
    document.add_paragraph("Do this:")
    for text in ("one", "two"):
        document.add_paragraph(text, style="List Number")
    document.add_paragraph("any", style="List Bullet")
    [section] = sections(read, saved(document))
    assert section.text == "Do this:\n\n1. one\n2. two\n- any"


def test_empty_paragraphs_of_a_list_have_numbers(read: Read) -> None:
    """Word also counts an empty paragraph, unless its paragraph mark is hidden or deleted."""
    document = docx.Document()
    for text, mark in (("one", ""), ("", ""), ("", "vanish"), ("", "del"), ("three", "")):
        paragraph = document.add_paragraph(text, style="List Number")
        if mark:
            paragraph._p.get_or_add_pPr().append(parse_xml(f"<w:rPr {nsdecls('w')}><w:{mark}/></w:rPr>"))
    [section] = sections(read, saved(document))
    assert section.text == "1. one\n\n3. three"


def test_invisible_content_is_left_out(read: Read) -> None:
    """Deletions, hidden text, field codes and tables of contents are left out. Insertions and links are read."""
    document = docx.Document()
    run(
        document,
        "<w:del><w:r><w:delText>gone </w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>moved </w:t></w:r></w:moveFrom>"
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden </w:t></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>"
        "<w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:r><w:tab/></w:r>"
        "<w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink><w:r><w:br/><w:t>line</w:t></w:r>",
    )
    document.add_paragraph("Fares 3", style=document.styles.add_style("toc 1", 1))
    contents = (
        f"<w:sdt {nsdecls('w')}><w:sdtPr><w:docPartObj><w:docPartGallery w:val='Table of Contents'/></w:docPartObj>"
        "</w:sdtPr><w:sdtContent><w:p><w:r><w:t>Contents</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    )
    control = contents.replace("Table of Contents", "Other").replace(">Contents<", ">Control<")
    document.element.body.insert(1, parse_xml(contents))
    document.element.body.insert(2, parse_xml(control))
    [section] = sections(read, saved(document))
    assert section.text == "new link\nline\n\nControl"


NOTE_AND_BOX = (
    '<w:r><w:t>Boats</w:t><w:footnoteReference w:id="7"/><w:t> go.</w:t></w:r>'
    "<w:r><w:txbxContent><w:p><w:r><w:t>In a box.</w:t></w:r></w:p></w:txbxContent></w:r>"
)


def with_note(repack: Repack, document: Any) -> bytes:
    """Return the document with a footnote with the id 7."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    note = "<w:footnote w:id='7'><w:p><w:r><w:t>Not all.</w:t></w:r></w:p></w:footnote>"
    notes = f"<w:footnotes {nsdecls('w')}>{note}</w:footnotes>"
    return repack(
        saved(document),
        **{
            "word/footnotes.xml": notes.encode(),
            "word/_rels/document.xml.rels": lambda old: old.replace(
                b"</Relationships>",
                f'<Relationship Id="rIdX" Type="{kind}" Target="footnotes.xml"/></Relationships>'.encode(),
            ),
        },
    )


def test_notes_follow_their_paragraph(read: Read, repack: Repack) -> None:
    """A footnote or a text box follows its paragraph."""
    document = docx.Document()
    run(document, NOTE_AND_BOX)
    [section] = sections(read, with_note(repack, document))
    assert section.text == "Boats[1] go.\n\n[1] Not all.\n\nIn a box."


def test_notes_in_tables(read: Read, repack: Repack) -> None:
    """Footnotes and text boxes follow their table; in a table for layout, their paragraph. No number is skipped."""
    document = docx.Document()
    frame = document.add_table(rows=1, cols=1)
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 1).text = "Vessel", "Seats", "420"
    for cell in (frame.cell(0, 0), table.cell(1, 0)):
        cell._tc.insert(0, parse_xml(f"<w:p {nsdecls('w')}>{NOTE_AND_BOX}</w:p>"))
    [section] = sections(read, with_note(repack, document))
    assert section.text == (
        "Boats[1] go.\n\n[1] Not all.\n\nIn a box.\n\nVessel: Boats[2] go.; Seats: 420\n\n[2] Not all.\n\nIn a box."
    )


def test_numbers_in_tables(read: Read) -> None:
    """The paragraphs of cells have the numbers that Word shows, and the numbers continue after the table."""
    document = docx.Document()
    table = document.add_table(rows=3, cols=2)
    for row, texts in zip(table.rows, (("No.", "Rule"), ("", "Wait."), ("Stop", "Go.")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    for row in table.rows[1:]:
        row.cells[0].paragraphs[0].style = document.styles["List Number"]
    table.cell(1, 1).add_paragraph(style="List Bullet")
    frame = document.add_table(rows=1, cols=1).cell(0, 0).paragraphs[0]
    frame.text, frame.style = "Framed", document.styles["List Number"]
    document.add_paragraph("After", style="List Number")
    [section] = sections(read, saved(document))
    assert section.text == "No.: 1.; Rule: Wait.\nNo.: 2. Stop; Rule: Go.\n\n3. Framed\n4. After"


def test_a_document_without_text(read: Read, make_docx: MakeDocx) -> None:
    """The refusal says that the document has no text."""
    with pytest.raises(Unreadable, match="no text"):
        read(make_docx(), "a.docx")

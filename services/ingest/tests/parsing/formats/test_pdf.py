import io
from collections.abc import Callable
from pathlib import Path

import pytest
from fpdf import FPDF
from fpdf.drawing_primitives import Transform
from ingest.parsing import forms, page_images
from ingest.parsing.content import Head, Omission, Page, Part, Scan
from ingest.parsing.formats import pdf
from ingest.parsing.frames import Request
from ingest.parsing.process import Limits, ProcessParser
from ingest.parsing.refusals import TooLarge, Unreadable
from PIL import Image

Read = Callable[..., tuple[Head, list[Page]]]


def test_pages_are_kept(read: Read, make_pdf: Callable[..., bytes]) -> None:
    """Each page has its number. A page without text counts as a page too."""
    head, pages = read(make_pdf("The first page.", "", "The third page."), "a.pdf")
    assert (head.content_type, head.page_count) == ("application/pdf", 3)
    assert [page.number for page in pages] == [1, 2, 3]
    assert [[section.text for section in page.sections] for page in pages] == [
        ["The first page."],
        [],
        ["The third page."],
    ]


def test_wrapped_lines_are_joined_and_paragraphs_kept(read: Read) -> None:
    """A paragraph becomes one line. A blank line separates it from the next paragraph."""
    document = FPDF()
    document.set_font("Helvetica", size=11)
    document.add_page()
    first = "The ferry leaves at eight in the morning and takes an hour and a half to the outermost island. " * 3
    second = (
        "Children travel free of charge when an adult is with them, as long as there is room on the car deck. " * 3
    )
    for text in (first, second):
        document.multi_cell(0, 6, text.strip(), new_x="LMARGIN", new_y="NEXT")
        document.ln(6)
    _, [page] = read(bytes(document.output()), "a.pdf")
    assert page.sections[0].text == f"{first.strip()}\n\n{second.strip()}"


def test_headings_by_size_apply_across_pages(read: Read) -> None:
    """Lines in larger letters are headings. A page without a heading belongs to the previous heading."""
    document = FPDF()
    body = "Some words of ordinary size, enough of them to be the body of the document. " * 4

    def put(text: str, size: int) -> None:
        document.set_font("Helvetica", size=size)
        document.multi_cell(0, size / 2, text, new_x="LMARGIN", new_y="NEXT")

    document.add_page()
    put("Handbook", 24)
    put("Fire", 16)
    put(body, 11)
    put("Flood", 16)
    put(body, 11)
    document.add_page()
    put(body, 11)
    _, pages = read(bytes(document.output()), "a.pdf")
    paths = [[section.headings for section in page.sections] for page in pages]
    assert paths == [[("Handbook", "Fire"), ("Handbook", "Flood")], [("Handbook", "Flood")]]
    assert pages[0].sections[0].text.startswith("Handbook\nFire\n\nSome words")


def test_a_scaled_page_has_the_same_headings(read: Read) -> None:
    """The visible size of the letters determines headings, not the font size before scaling."""
    document = FPDF()
    document.add_page()
    document.set_font("Helvetica", size=5)
    with document.transform(Transform.scaling(3)):
        document.text(10, 20, "Shown three times as large")
    document.set_font("Helvetica", size=9)
    document.text(30, 100, "These words are written larger than the heading was, and shown smaller.")
    document.text(30, 105, "They are the body of this little document, which is not long at all.")
    _, [page] = read(bytes(document.output()), "a.pdf")
    assert [section.headings for section in page.sections] == [("Shown three times as large",)]
    assert "These words" in page.sections[0].text


def test_running_lines_are_left_out(read: Read) -> None:
    """Text that repeats at the foot of each page, apart from page numbers, is left out."""

    class Numbered(FPDF):
        def footer(self) -> None:
            self.set_y(-15)
            self.set_font("Helvetica", size=8)
            self.cell(0, 10, f"Annual report - page {self.page_no()}")

    document = Numbered()
    for number in range(5):
        document.add_page()
        document.set_font("Helvetica", size=11)
        document.multi_cell(
            0, 6, f"Chapter text number {number}, which differs from page to page.", new_x="LMARGIN", new_y="NEXT"
        )
        document.multi_cell(0, 6, f"And a second line {'x' * number} of it.", new_x="LMARGIN", new_y="NEXT")
        document.multi_cell(0, 6, f"And a third one {'y' * number} of it.", new_x="LMARGIN", new_y="NEXT")
    _, pages = read(bytes(document.output()), "a.pdf")
    assert all("Annual report" not in section.text for page in pages for section in page.sections)
    assert all("Chapter text" in page.sections[0].text for page in pages)


def test_refusals_name_the_reason(read: Read, make_pdf: Callable[..., bytes], scanned_pdf: bytes) -> None:
    """The refusal names the reason: encrypted, truncated, damaged, scanned, without text, or too long."""
    three_pages = make_pdf("One.", "Two.", "Three.")
    for content, message in (
        (make_pdf("secret", password="x"), "encrypted"),
        (three_pages[:-200], "truncated"),
        (b"%PDF-1.4\ngarbage\n%%EOF", "damaged"),
        (scanned_pdf, "images"),
        (make_pdf("", ""), "no text"),
    ):
        with pytest.raises(Unreadable, match=message):
            read(content, "a.pdf")
    with pytest.raises(TooLarge, match=r"3 pages. The limit is 2"):
        read(three_pages, "a.pdf", max_pages=2)


def form(name: str = "Petrel") -> bytes:
    """Return a PDF of one page with two text fields, one of them empty, and a checked and an unchecked box."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R 5 0 R 6 0 R 7 0 R] >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Annots [4 0 R 5 0 R 6 0 R 7 0 R] >>",
        f"<< /Type /Annot /Subtype /Widget /Rect [9 9 99 20] /FT /Tx /T (ship) /TU (Its name:) /V ({name}) >>",
        "<< /Type /Annot /Subtype /Widget /Rect [9 29 99 40] /FT /Tx /T (empty) /V () >>",
        "<< /Type /Annot /Subtype /Widget /Rect [9 49 20 60] /FT /Btn /T (cars) /V /Yes /AS /Yes "
        "/AP << /N << /Yes 8 0 R /Off 8 0 R >> >> >>",
        "<< /Type /Annot /Subtype /Widget /Rect [9 69 20 80] /FT /Btn /T (bikes) /V /Off /AS /Off "
        "/AP << /N << /Yes 8 0 R /Off 8 0 R >> >> >>",
        "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 0 >>\nstream\n\nendstream",
    ]
    content = "%PDF-1.7\n" + "".join(f"{n} 0 obj\n{source}\nendobj\n" for n, source in enumerate(objects, 1))
    content += "trailer\n<< /Root 1 0 R /Size 9 >>\nstartxref\n0\n%%EOF\n"
    return content.encode()


def test_fields_of_forms_are_read(read: Read) -> None:
    """Filled fields and checked boxes follow the text of their page. Empty fields are left out."""
    _, [page] = read(form(), "form.pdf")
    assert [section.text for section in page.sections] == ["Its name: Petrel\ncars: Yes"]


def test_fields_after_the_limit(read_parts: Callable[..., list[Part]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields after the limit cause an omission for their page."""
    assert len(read_parts(form(), "form.pdf")) == 2
    monkeypatch.setattr(forms, "_MAX_ANNOTATIONS", 2)
    _, page, omission = read_parts(form(), "form.pdf")
    assert isinstance(page, Page)
    assert page.sections[0].text == "Its name: Petrel"
    assert isinstance(omission, Omission)
    assert (omission.kind, omission.page) == ("TooLarge", 1)
    assert omission.message.startswith("Further form fields on the page were not read.")


def test_a_field_with_too_many_characters(read_parts: Callable[..., list[Part]]) -> None:
    """A field with more than 100,000 characters causes an omission. The other fields are read."""
    _, page, *omissions = read_parts(form("a" * 100_000), "form.pdf", max_characters=1_000_000)
    assert isinstance(page, Page)
    assert page.sections[0].text == f"Its name: {'a' * 100_000}\ncars: Yes"
    assert not omissions
    _, page, omission = read_parts(form("a" * 100_001), "form.pdf")
    assert isinstance(page, Page)
    assert page.sections[0].text == "cars: Yes"
    message = "A form field on the page was not read. The limit is 100000 characters for each field."
    assert omission == Omission("TooLarge", message, 1)


def test_a_scanned_page_among_others_is_an_omission(read_parts: Callable[..., list[Part]]) -> None:
    """A page that is an image causes an omission with its number. A blank page does not."""
    document = FPDF()
    document.set_font("helvetica")
    document.add_page()
    document.cell(text="The first page.")
    document.add_page()
    document.add_page()
    document.image(Image.new("RGB", (60, 40), "white"), w=100)
    parts = read_parts(bytes(document.output()), "a.pdf")
    assert [part.number for part in parts if isinstance(part, Page)] == [1, 2, 3]
    omissions = [part for part in parts if isinstance(part, Omission)]
    assert [(omission.kind, omission.page) for omission in omissions] == [("Unreadable", 3)]


@pytest.mark.parametrize(
    ("limit", "value", "omissions"),
    [
        (
            "_MAX_OBJECTS",
            2,
            [(1, "Large images on the page were not read: 1."), (2, "Large images on the page were")],
        ),
        ("_MAX_IMAGES", 2, [(2, "Further images on this page and on later pages were not read. The limit is 2")]),
        ("_MAX_IMAGES", 3, [(2, "Further images on this page and on later pages were not read. The limit is 3")]),
    ],
)
def test_images_after_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, omissions: list[tuple[int, str]]
) -> None:
    """Large images after a limit cause an omission for each page, or one for the document."""
    monkeypatch.setattr(page_images, limit, value)
    document = FPDF()
    document.set_font("helvetica")
    for shade in (0, 100, 200):
        document.add_page()
        document.cell(text="Text.", new_x="LMARGIN", new_y="NEXT")
        if shade < 200 or limit == "_MAX_IMAGES":
            document.image(Image.new("RGB", (300, 200), (shade, 255, 255)), w=100)
            document.image(Image.new("RGB", (300, 200), (shade, 0, 0)), w=100)
    (tmp_path / "a.pdf").write_bytes(bytes(document.output()))
    parts = list(pdf.parse(Request(str(tmp_path / "a.pdf"), ".pdf", 100, 10_000, 1024**3, 10, scans="read")))
    found = [(part.page, part.message) for part in parts if isinstance(part, Omission)]
    assert [page for page, _ in found] == [page for page, _ in omissions]
    for (_, message), (_, expected) in zip(found, omissions, strict=True):
        assert message.startswith(expected)
    assert sum(isinstance(part, Scan) for part in parts) == (2 if limit == "_MAX_OBJECTS" else value)


def test_small_images_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of one image, a large image is read although an earlier page has a symbol and a small image."""
    monkeypatch.setattr(page_images, "_MAX_IMAGES", 1)
    document = FPDF()
    document.set_font("helvetica")
    for shade, widths in ((0, (10, 60)), (100, (120,))):
        document.add_page()
        document.cell(text="Text.", new_x="LMARGIN", new_y="NEXT")
        for width in widths:
            document.image(Image.new("RGB", (300, 200), (shade, width, 0)), w=width)
    (tmp_path / "a.pdf").write_bytes(bytes(document.output()))
    parts = list(pdf.parse(Request(str(tmp_path / "a.pdf"), ".pdf", 100, 10_000, 1024**3, 10, scans="read")))
    assert [part.number for part in parts if isinstance(part, Scan)] == [2]
    assert [part.page for part in parts if isinstance(part, Omission)] == [1]


def test_the_language_of_a_pdf(read: Read) -> None:
    """The document has the language of the catalogue."""
    document = FPDF()
    document.set_lang("de-DE")
    document.add_page()
    document.set_font("Helvetica", size=11)
    document.cell(0, 8, "Guten Tag")
    head, _ = read(bytes(document.output()), "a.pdf")
    assert head.language == "de-DE"


def parsed(content: bytes, folder: Path, max_pictures: int) -> list[Page]:
    (folder / "a.pdf").write_bytes(content)
    return [
        part
        for part in pdf.parse(Request(str(folder / "a.pdf"), ".pdf", 100, 10_000, 1024**3, 10, max_pictures))
        if isinstance(part, Page)
    ]


def test_pages_have_pictures_up_to_a_number(make_pdf: Callable[..., bytes], tmp_path: Path) -> None:
    """Pictures are upright JPEGs of the fixed size. Pages after the limit have only text."""
    first, second, third = parsed(make_pdf("One.", "Two.", "Three."), tmp_path, 2)
    assert third.picture == b""
    for page in (first, second):
        assert len(page.picture) <= pdf.MAX_PICTURE_BYTES
        picture = Image.open(io.BytesIO(page.picture))
        assert picture.format == "JPEG"
        assert max(picture.size) in (pdf.PICTURE_SIDE, pdf.PICTURE_SIDE + 1)
        assert picture.size[0] < picture.size[1]
        assert sum(picture.convert("L").histogram()[:100]) > 0  # there is ink on it
    assert first.picture != second.picture


@pytest.mark.parametrize("size", [(14_400, 14_400), (1, 14_400), (3, 3)])
def test_pages_of_any_size(size: tuple[int, int], tmp_path: Path) -> None:
    """The size of a page determines only the aspect ratio of its picture."""
    document = FPDF(unit="pt", format=size)
    document.set_font("Helvetica", size=1)
    document.add_page()
    document.text(0.5, 1, "x")
    [page] = parsed(bytes(document.output()), tmp_path, 1)
    assert max(Image.open(io.BytesIO(page.picture)).size) <= pdf.PICTURE_SIDE + 1


def test_a_picture_that_stays_too_large_is_left_out(
    make_pdf: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the picture of a page is too large, the page has no picture, but its text is read."""
    monkeypatch.setattr(pdf, "MAX_PICTURE_BYTES", 100)
    [page] = parsed(make_pdf("One."), tmp_path, 1)
    assert page.picture == b""
    assert page.sections[0].text == "One."


async def test_the_child_sends_requested_pictures(make_pdf: Callable[..., bytes], tmp_path: Path) -> None:
    """The child sends pictures only if they are requested."""
    (tmp_path / "a.pdf").write_bytes(make_pdf("One.", "Two."))
    parser = ProcessParser(Limits(pictures=1))
    try:
        for requested in (True, False):
            parts = [part async for part in parser.parse(tmp_path / "a.pdf", "a.pdf", pictures=requested)]
            assert isinstance(parts[0], Head)
            found = [part.picture[:2] for part in parts if isinstance(part, Page)]
            assert found == ([b"\xff\xd8", b""] if requested else [b"", b""])
    finally:
        await parser.aclose()

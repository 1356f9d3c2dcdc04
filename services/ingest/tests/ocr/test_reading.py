"""Images in documents: the parser yields their recognised text, or a warning."""

import asyncio
import io
from collections.abc import Callable, Iterator

import docx
import pptx
import pytest
from fpdf import FPDF
from ingest.ocr.reading import OcrParser
from ingest.ocr.recogniser import NotRecognised, RecognisedLine
from ingest.parsing.content import Omission, Page, Part
from ingest.parsing.process import Limits, ProcessParser
from PIL import Image
from servicekit.errors import UnreadableDocument, UnsupportedMedia


class Reader:
    """A `TextRecogniser` with the same result for every picture: a line of text, no line, or an error."""

    def __init__(self, text: str = "Boats leave at ten.", *, fails: bool = False) -> None:
        self.text = text
        self.fails = fails
        self.pictures: list[Image.Image] = []

    async def lines(self, picture: bytes) -> list[RecognisedLine]:
        with Image.open(io.BytesIO(picture)) as opened:
            self.pictures.append(opened.copy())
        if self.fails:
            raise NotRecognised("Reading the picture took longer than 60 s.")
        corners = ((0.0, 0.0), (190.0, 0.0), (190.0, 20.0), (0.0, 20.0))
        return [RecognisedLine(self.text, 0.97, corners)] if self.text else []


Parse = Callable[..., list[Part]]


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parse]:
    """Return a function that parses bytes under a name. All tests share the parsing child."""
    path = tmp_path_factory.mktemp("documents") / "original"
    with asyncio.Runner() as runner:
        process = ProcessParser(Limits(pages=10))

        def parse(content: bytes, name: str, reader: Reader | None, *, ocr: bool = True) -> list[Part]:
            path.write_bytes(content)

            async def run() -> list[Part]:
                return [part async for part in OcrParser(process, reader).parse(path, name, ocr=ocr)]

            return runner.run(run())

        yield parse
        runner.run(process.aclose())


def picture(kind: str, size: tuple[int, int] = (400, 100), count: int = 1) -> bytes:
    buffer = io.BytesIO()
    images = [Image.new("RGB", size, "white") for _ in range(count)]
    if count > 1:
        images[0].save(buffer, kind, save_all=True, append_images=images[1:])
    else:
        images[0].save(buffer, kind)
    return buffer.getvalue()


def pdf(*pages: str) -> bytes:
    """Return a PDF with pages of text; an empty text becomes an image."""
    document = FPDF()
    document.set_font("Helvetica", size=11)
    for text in pages:
        document.add_page()
        if text:
            document.multi_cell(0, 6, text)
        else:
            document.image(Image.new("RGB", (600, 400), "white"), w=100)
    return bytes(document.output())


def summary(parts: list[Part]) -> list[tuple[int, str, float | None]]:
    return [
        (part.number, section.text, part.confidence)
        for part in parts
        if isinstance(part, Page)
        for section in part.sections
    ]


@pytest.mark.parametrize(
    ("kind", "name"), [("PNG", "a.png"), ("JPEG", "a.jpg"), ("TIFF", "a.tif"), ("WEBP", "a.webp")]
)
def test_pictures_are_pages(parse: Parse, kind: str, name: str) -> None:
    """A picture is a page with the confidence of its text. Each picture of a TIFF is a page."""
    count = 2 if kind == "TIFF" else 1
    parts = parse(picture(kind, count=count), name, Reader())
    assert summary(parts) == [(number + 1, "Boats leave at ten.", 0.97) for number in range(count)]


def test_a_page_that_is_an_image_is_read_among_others(parse: Parse) -> None:
    """A page that is an image gets its recognised text. Other pages keep their text. There is no warning."""
    reader = Reader()
    parts = parse(pdf("One.", "", "Three."), "a.pdf", reader)
    assert summary(parts) == [(1, "One.", None), (2, "Boats leave at ten.", 0.97), (3, "Three.", None)]
    assert not [part for part in parts if isinstance(part, Omission)]
    [image] = reader.pictures
    assert max(image.size) == 2000


def test_messages_without_ocr(parse: Parse) -> None:
    """Without OCR, the messages for a page, a document and a picture say how to install it, or that it is off."""
    [omission] = [part for part in parse(pdf("One.", ""), "a.pdf", None) if isinstance(part, Omission)]
    assert (omission.page, "OCR is not installed" in omission.message) == (2, True)
    with pytest.raises(UnreadableDocument, match="OCR is not installed"):
        parse(pdf(""), "a.pdf", None)
    with pytest.raises(UnsupportedMedia, match="OCR is not installed"):
        parse(picture("PNG"), "a.png", None)
    reader = Reader()
    [omission] = [part for part in parse(pdf("One.", ""), "a.pdf", reader, ocr=False) if isinstance(part, Omission)]
    assert "off for this index" in omission.message
    assert not reader.pictures


def illustrated(*widths: float, caption: str = "", angle: int = 0) -> bytes:
    """Return a page of text with different captioned images of given widths, in millimetres of 210."""
    document = FPDF()
    document.set_font("Helvetica", size=11)
    document.add_page()
    document.multi_cell(0, 6, "The text of the page, a line above its images.")
    for at, width in enumerate(widths):
        top = document.get_y()
        document.image(Image.new("RGB", (600, 400), (255 - at, 255, 255)), x=15, w=width)
        if caption:
            below = document.get_y()
            document.set_xy(15, top + 5)
            document.cell(0, 6, caption)
            document.set_y(below)
    content = bytes(document.output())
    return content.replace(b"/Type /Page\n", b"/Type /Page\n/Rotate %d\n" % angle) if angle else content


@pytest.mark.parametrize("angle", [0, 90])
def test_large_images_beside_text_are_read(parse: Parse, angle: int) -> None:
    """Images follow the text of the page in drawing order, each once. Small ones cause a warning, symbols none."""
    reader = Reader()
    parts = parse(illustrated(120, 60, 60, 10, angle=angle), "a.pdf", reader)
    text = "The text of the page, a line above its images."
    assert summary(parts) == [(1, text, None), (1, "Boats leave at ten.", 0.97)]
    [omission] = [part for part in parts if isinstance(part, Omission)]
    assert (omission.page, omission.message) == (1, "2 images on the page were too small to be read.")
    [image] = reader.pictures
    assert image.size == pytest.approx((538, 808) if angle else (808, 538), abs=2)
    assert image.getpixel((image.width // 2, image.height // 2)) == 255


def test_images_beside_text_without_ocr(parse: Parse) -> None:
    """Without OCR, one warning for each page reports its images. If OCR is off, there is no warning."""
    [omission] = [part for part in parse(illustrated(120), "a.pdf", None) if isinstance(part, Omission)]
    assert omission.message.startswith("An image on the page was not read. OCR is not installed")
    assert not [part for part in parse(illustrated(120), "a.pdf", None, ocr=False) if isinstance(part, Omission)]


def test_an_image_below_text_is_not_read(parse: Parse) -> None:
    """An image below text may be a background, or a scan with a text layer. Its text would be a repetition."""
    reader = Reader()
    parts = parse(illustrated(120, caption="A caption that lies over the image."), "a.pdf", reader)
    assert not reader.pictures
    assert not [part for part in parts if isinstance(part, Omission)]


def test_unread_pictures_are_warnings_with_pages(parse: Parse) -> None:
    """A picture without text and a picture that takes too long cause warnings with their page."""
    for reader, message in ((Reader(""), "no text was recognised"), (Reader(fails=True), "took longer")):
        [omission] = [part for part in parse(pdf("One.", ""), "a.pdf", reader) if isinstance(part, Omission)]
        assert (omission.page, message in omission.message) == (2, True)
    with pytest.raises(UnreadableDocument, match="no text was recognised in its images"):
        parse(picture("PNG"), "a.png", Reader(""))


def test_a_picture_without_text_has_no_confidence(parse: Parse) -> None:
    """A picture in which no text is recognised has no confidence, so that the metadata does not list its page."""
    document = docx.Document()
    document.add_paragraph("Text.")
    document.add_picture(io.BytesIO(picture("PNG")))
    buffer = io.BytesIO()
    document.save(buffer)
    pages = [part for part in parse(buffer.getvalue(), "a.docx", Reader("")) if isinstance(part, Page)]
    assert [page.confidence for page in pages] == [None, None]


def test_pictures_in_word_and_powerpoint(parse: Parse) -> None:
    """The text of a picture follows its page, once for equal pictures. Symbols are not read. Without OCR, there is
    one warning.
    """
    document = docx.Document()
    document.add_paragraph("Text.")
    deck = pptx.Presentation()
    for size in ((400, 100), (400, 100), (16, 16)):
        document.add_picture(io.BytesIO(picture("PNG", size)))
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_picture(io.BytesIO(picture("PNG", size)), 0, 0)
    slide.shapes.add_textbox(0, 0, 99999, 99999).text_frame.text = "Text."
    for office_document, name, pages in ((document, "a.docx", [0, 0]), (deck, "a.pptx", [1, 3])):
        buffer = io.BytesIO()
        office_document.save(buffer)
        found = summary(parse(buffer.getvalue(), name, Reader()))
        assert [number for number, _, _ in found] == pages
        assert sorted(text for _, text, _ in found) == ["Boats leave at ten.", "Text."]
        [omission] = [part for part in parse(buffer.getvalue(), name, None) if isinstance(part, Omission)]
        assert omission.message.startswith("A picture was not read. OCR is not installed")

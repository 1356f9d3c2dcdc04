import io
from collections.abc import Callable
from pathlib import Path

import pytest
from fpdf import FPDF
from ingest.parsing import page_picture, pdf
from ingest.parsing.content import Head, Page
from ingest.parsing.process import Limits, ProcessParser
from PIL import Image


def pages(content: bytes, folder: Path, most: int) -> list[Page]:
    (folder / "a.pdf").write_bytes(content)
    return [part for part in pdf.parse(folder / "a.pdf", 100, most) if isinstance(part, Page)]


def test_pages_have_pictures_up_to_a_number(make_pdf: Callable[..., bytes], tmp_path: Path) -> None:
    """JPEG, upright, as large as models look at; the pages behind have text alone."""
    first, second, third = pages(make_pdf("One.", "Two.", "Three."), tmp_path, 2)
    assert third.picture == b""
    for page in (first, second):
        assert len(page.picture) <= page_picture.LARGEST
        picture = Image.open(io.BytesIO(page.picture))
        assert picture.format == "JPEG"
        assert max(picture.size) in (page_picture.LONGEST_SIDE, page_picture.LONGEST_SIDE + 1)
        assert picture.size[0] < picture.size[1]
        assert sum(picture.convert("L").histogram()[:100]) > 0  # there is ink on it
    assert first.picture != second.picture


@pytest.mark.parametrize("size", [(14_400, 14_400), (1, 14_400), (3, 3)])
def test_pages_of_any_size(size: tuple[int, int], tmp_path: Path) -> None:
    """What a page says of its size decides nothing but its shape."""
    document = FPDF(unit="pt", format=size)
    document.set_font("Helvetica", size=1)
    document.add_page()
    document.text(0.5, 1, "x")
    [page] = pages(bytes(document.output()), tmp_path, 1)
    assert max(Image.open(io.BytesIO(page.picture)).size) <= page_picture.LONGEST_SIDE + 1


def test_a_picture_that_cannot_be_made_small_is_none(
    make_pdf: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's text counts all the same."""
    monkeypatch.setattr(page_picture, "LARGEST", 100)
    [page] = pages(make_pdf("One."), tmp_path, 1)
    assert page.picture == b""
    assert page.sections[0].text == "One."


async def test_pictures_come_out_of_the_child(make_pdf: Callable[..., bytes], tmp_path: Path) -> None:
    """Only where they are wanted."""
    (tmp_path / "a.pdf").write_bytes(make_pdf("One.", "Two."))
    parser = ProcessParser(Limits(pictures=1))
    try:
        for wanted in (True, False):
            parts = [part async for part in parser.parse(tmp_path / "a.pdf", "a.pdf", pictures=wanted)]
            assert isinstance(parts[0], Head)
            found = [part.picture[:2] for part in parts if isinstance(part, Page)]
            assert found == ([b"\xff\xd8", b""] if wanted else [b"", b""])
    finally:
        await parser.aclose()

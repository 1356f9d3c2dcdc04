"""The process that reads pictures: the real models, and programs that misbehave."""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from ingest.ocr.lines import confidence, sections
from ingest.ocr.recogniser import NotRecognised, Recogniser
from PIL import Image, ImageDraw, ImageFont
from servicekit.errors import Unavailable

PYTHON = Path(sys.prefix) / "ocr" / "bin" / "python"
TEXT = "The ferry leaves at half past ten."
START = "#!/bin/sh\nprintf '\\000\\000\\000\\002{}'\n"

Program = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return a program in the place of the Python; it says that it is ready and then behaves as told."""

    def program(body: str) -> Path:
        path = tmp_path / "python"
        path.write_text(START + body)
        path.chmod(0o755)
        return path

    return program


async def test_a_process_that_ends_is_the_failure_of_one_picture(program: Program) -> None:
    """One picture fails, and the next one starts another process."""
    recogniser = Recogniser(program("read x; exit 3"), 20)
    for _ in range(2):
        with pytest.raises(NotRecognised, match="crashed"):
            await recogniser.lines(b"picture\n")
    await recogniser.aclose()


async def test_a_picture_that_takes_too_long(program: Program) -> None:
    """The picture fails, and its process is killed."""
    recogniser = Recogniser(program("sleep 3600"), 0.2)
    with pytest.raises(NotRecognised, match=r"longer than 0\.2 s"):
        await recogniser.lines(b"picture")
    assert not recogniser._processes._idle
    await recogniser.aclose()


async def test_who_is_cancelled_leaves_no_process(program: Program, tmp_path: Path) -> None:
    """A cancelled caller ends the process, and another process reads the next picture."""
    recogniser = Recogniser(program(f"echo $$ >{tmp_path}/pid; exec sleep 3600"), 3600)
    reading = asyncio.create_task(recogniser.lines(b"picture"))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():  # noqa: ASYNC110  # of a shell
        await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert reading.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    await recogniser.aclose()


async def test_a_python_that_is_missing(tmp_path: Path) -> None:
    """A missing Python is an outage, and the message says what to check."""
    with pytest.raises(Unavailable, match="does not start"):
        await Recogniser(tmp_path / "none", 1).lines(b"")
    with pytest.raises(Unavailable, match="CAUSEWAY_INGEST_OCR_PYTHON"):
        await Recogniser(Path("/bin/false"), 1).lines(b"")


@pytest.fixture
async def recogniser() -> AsyncIterator[Recogniser]:
    """Return the recogniser with the real models."""
    assert PYTHON.exists(), "RapidOCR is not installed: make .venv/.ocr"
    recogniser = Recogniser(PYTHON, 120)
    yield recogniser
    await recogniser.aclose()


@pytest.mark.slow
async def test_text_is_read_however_the_page_lies(recogniser: Recogniser) -> None:
    """One process reads picture after picture in all orientations. A blank or a damaged picture does not end it."""
    page = Image.new("L", (1000, 300), "white")
    ImageDraw.Draw(page).text((60, 100), TEXT, fill="black", font=ImageFont.load_default(40))
    for turn in (0, 2, 90, 180, 270):
        found = await recogniser.lines(png(page.rotate(turn, expand=True, fillcolor=255)))
        [section] = sections(found)
        assert section.text == TEXT, turn
        assert confidence(found) > 0.9
    assert await recogniser.lines(png(Image.new("L", (300, 300), "white"))) == []
    with pytest.raises(NotRecognised, match="could not be read"):
        await recogniser.lines(b"no picture")
    assert await recogniser.lines(png(page))


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()

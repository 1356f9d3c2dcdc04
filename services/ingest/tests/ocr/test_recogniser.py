"""The OCR process: with the real models, and with programs that misbehave."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from ingest.ocr.child import Damaged, decoded
from ingest.ocr.lines import confidence, sections
from ingest.ocr.recogniser import NotRecognised, Recogniser
from PIL import Image, ImageDraw, ImageFont
from servicekit.errors import Unavailable

PYTHON = Path(sys.prefix) / "ocr" / "bin" / "python"
TEXT = "The ferry leaves at half past ten."
START = "#!/bin/sh\nprintf '\\000\\000\\000\\002{}'\n"

Program = Callable[[str], Path]


def png(image: Image.Image) -> bytes:
    """Return a picture as PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return a function that writes a program to use in place of Python. The program reports that it is ready, and
    then runs ``body``.
    """

    def program(body: str) -> Path:
        path = tmp_path / "python"
        path.write_text(START + body)
        path.chmod(0o755)
        return path

    return program


async def test_a_process_that_ends_fails_one_picture(program: Program) -> None:
    """If the process ends, one picture fails, and the next picture starts another process."""
    recogniser = Recogniser(program("read x; exit 3"), 20)
    for _ in range(2):
        with pytest.raises(NotRecognised, match="crashed"):
            await recogniser.lines(b"picture\n")
    await recogniser.aclose()


@pytest.mark.parametrize(("damaged", "message"), [(True, "is damaged"), (False, "could not be read")])
async def test_the_message_hides_the_cause(program: Program, damaged: bool, message: str) -> None:
    """The message for the user does not contain the cause, which names internal objects. The log contains it."""
    answer = json.dumps({"failed": "Error: <_io.BytesIO object at 0x7f7>", "damaged": damaged})
    frame = f"printf '\\000\\000\\000\\{len(answer):03o}'; printf '%s' '{answer}'"
    recogniser = Recogniser(program(f"head -c 11 >/dev/null; {frame}; head -c 16"), 20)
    with pytest.raises(NotRecognised) as caught:
        await recogniser.lines(b"picture")
    assert str(caught.value) == f"The picture {message}."
    await recogniser.aclose()


@pytest.mark.parametrize("content", [b"no picture", png(Image.new("L", (300, 300), "white"))[:90]])
def test_a_picture_that_cannot_be_decoded_is_damaged(content: bytes) -> None:
    """The child process distinguishes damaged pictures from its own failures."""
    with pytest.raises(Damaged):
        decoded(content)


async def test_a_picture_that_takes_too_long(program: Program) -> None:
    """The picture fails, and its process is killed."""
    recogniser = Recogniser(program("sleep 3600"), 0.2)
    with pytest.raises(NotRecognised, match=r"longer than 0\.2 s"):
        await recogniser.lines(b"picture")
    assert not recogniser._processes._idle
    await recogniser.aclose()


async def test_cancellation_kills_the_process(program: Program, tmp_path: Path) -> None:
    """If the caller is cancelled, the process is killed, and another process reads the next picture."""
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
    """If the Python does not exist, the error is Unavailable, and the message names the setting to check."""
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
async def test_text_is_read_in_all_orientations(recogniser: Recogniser) -> None:
    """One process reads several pictures in all orientations. A blank or a damaged picture does not end the
    process.
    """
    page = Image.new("L", (1000, 300), "white")
    ImageDraw.Draw(page).text((60, 100), TEXT, fill="black", font=ImageFont.load_default(40))
    for turn in (0, 2, 90, 180, 270):
        found = await recogniser.lines(png(page.rotate(turn, expand=True, fillcolor=255)))
        [section] = sections(found)
        assert section.text == TEXT, turn
        assert confidence(found) > 0.9
    assert await recogniser.lines(png(Image.new("L", (300, 300), "white"))) == []
    with pytest.raises(NotRecognised, match="is damaged"):
        await recogniser.lines(b"no picture")
    assert await recogniser.lines(png(page))

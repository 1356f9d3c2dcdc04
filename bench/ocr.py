"""Benchmark of OCR: character error rate, CPU time and memory on pages of known text.

The benchmark renders the pages of the sample corpus' PDFs at 150 dpi. Variants of the pages are rotated, noisy,
blurred or JPEG of a low quality. The comparison ignores white space. The error is the edit distance as a share of
the known text's length.

Usage: python bench/ocr.py [--pages N] [--results DIRECTORY]
"""

import argparse
import asyncio
import io
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pypdfium2  # type: ignore[import-untyped]  # shipped without types
from ingest.ocr import lines
from ingest.ocr.recogniser import Recogniser
from ingest.parsing.formats import pdf
from ingest.parsing.scans import encoded
from ingest.parsing.text.lines import rows
from PIL import Image, ImageFilter

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "examples" / "corpus"
PYTHON = Path(sys.prefix) / "ocr" / "bin" / "python"
DPI = 150
GOAL = 0.02
"""The maximum mean error of a variant."""


def noisy(page: Image.Image) -> Image.Image:
    """Return a page with grey noise and specks."""
    generator = random.Random(1)
    noise = Image.effect_noise(page.size, 40)
    mixed = Image.blend(page, noise, 0.25)
    pixels = mixed.load()
    assert pixels is not None
    for _ in range(page.width * page.height // 400):
        pixels[generator.randrange(page.width), generator.randrange(page.height)] = generator.choice((0, 255))
    return mixed


def compressed(page: Image.Image) -> Image.Image:
    """Return a page as JPEG of a low quality."""
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=25)
    return Image.open(buffer)


VARIANTS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "unchanged": lambda page: page,
    "rotated by 1.5°": lambda page: page.rotate(1.5, Image.Resampling.BICUBIC, fillcolor=255),
    "rotated by -3°": lambda page: page.rotate(-3, Image.Resampling.BICUBIC, fillcolor=255),
    "rotated by 180°": lambda page: page.rotate(180),
    "rotated by 90°": lambda page: page.rotate(90, expand=True),
    "noise": noisy,
    "blurred": lambda page: page.filter(ImageFilter.GaussianBlur(1)),
    "JPEG, quality 25": compressed,
}


def pages(count: int) -> list[tuple[str, Image.Image]]:
    """Return the text and the picture of a number of pages from all documents."""
    found = []
    for path in sorted(CORPUS.glob("*.pdf")):
        document = pypdfium2.PdfDocument(path)
        for number, page in enumerate(document):
            known = [line for row in rows(pdf.lines_of(document, number)) for line in row]
            picture = page.render(scale=DPI / 72).to_pil().convert("L")
            found.append((" ".join(line.text for line in known), picture))
    return [found[number * len(found) // count] for number in range(count)]


def error(known: str, read: str) -> float:
    """Return the character error rate without white space: the edits as a share of the known text's length."""
    expected = np.array([ord(letter) for letter in known if not letter.isspace()])
    recognized = [ord(letter) for letter in read if not letter.isspace()]
    row = np.arange(len(expected) + 1)
    columns = np.arange(len(expected) + 1)
    for number, letter in enumerate(recognized, 1):
        step = np.minimum(row[1:] + 1, row[:-1] + (expected != letter))
        # An insertion costs one more than its left neighbour, so the minimum over all cells to the left applies.
        row = np.minimum.accumulate(np.concatenate(([number], step)) - columns) + columns
    return int(row[-1]) / len(expected)


async def measure(count: int) -> dict[str, tuple[float, float, float]]:
    """Return the mean error, the worst error and the seconds per page of each variant."""
    recogniser = Recogniser(PYTHON, 120)
    result = {}
    try:
        for name, change in VARIANTS.items():
            errors, start = [], time.perf_counter()
            for known, page in pages(count):
                found = await recogniser.lines(encoded(change(page)))
                read = " ".join(line.text for line in lines.deskewed(found))
                errors.append(error(known, read))
            seconds = (time.perf_counter() - start) / count
            result[name] = (statistics.fmean(errors), max(errors), seconds)
            print(
                f"{name:18} {result[name][0]:6.2%} mean, {result[name][1]:6.2%} worst, {seconds:.1f} s per page",
                flush=True,
            )
    finally:
        await recogniser.aclose()
    return result


def write(page: Path, result: dict[str, tuple[float, float, float]], count: int) -> None:
    """Write ocr.md."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (usage.ru_utime + usage.ru_stime) / (count * len(VARIANTS))
    now = datetime.now(UTC).date().isoformat()
    table_rows = "".join(f"| {name} | {mean:.2%} | {worst:.2%} |\n" for name, (mean, worst, _) in result.items())
    page.write_text(
        f"""# OCR

{now}, `make bench-ocr`: {count} pages of the sample corpus' PDFs, rendered at {DPI} dpi. Character error rate
without white space, relative to the text of the PDF. {cpu:.1f} s of CPU per page, including the start; at most
{usage.ru_maxrss // 1024} MB.

| pages | mean | worst page |
|---|---:|---:|
{table_rows}"""
    )


def main() -> int:
    """Run the command line. The exit code is 1 if the mean error of a variant is above the goal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--pages", type=int, default=6, help="number of pages, from all documents")
    parser.add_argument("--results", type=Path, help="directory of ocr.md")
    arguments = parser.parse_args()
    result = asyncio.run(measure(arguments.pages))
    if arguments.results is not None:
        write(arguments.results / "ocr.md", result, arguments.pages)
    missed = [name for name, (mean, _, _) in result.items() if mean > GOAL]
    for name in missed:
        print(f"{name}: the mean error is above {GOAL:.0%}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

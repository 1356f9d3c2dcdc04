"""A parser that also recognises the text of pictures; implements `ingest.ports.Parser`."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Protocol

from servicekit.errors import UnreadableDocument

from ingest.ocr import lines
from ingest.ocr.recogniser import NotRecognised, RecognisedLine
from ingest.parsing.content import NO_MEMBERS, Member, MemberLimits, Omission, Page, Part, Scan
from ingest.parsing.process import ProcessParser
from ingest.parsing.scans import ScanMode


class TextRecogniser(Protocol):
    """Recognises the text of pictures."""

    async def lines(self, picture: bytes) -> list[RecognisedLine]:
        """See `Recogniser.lines`."""
        ...


class OcrParser:
    """Parses documents, and recognises the text of their pictures.

    Args:
        parser: Yields a `Scan` for each picture that may contain text.
        recogniser: Recognises the text of a picture; None if OCR is not installed.
    """

    def __init__(self, parser: ProcessParser, recogniser: TextRecogniser | None) -> None:
        self._parser = parser
        self._recogniser = recogniser

    async def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: MemberLimits = NO_MEMBERS,
        ocr: bool = True,
    ) -> AsyncGenerator[Part, None]:
        """See `ingest.ports.Parser.parse`."""
        scans = ScanMode.OFF if not ocr else ScanMode.MISSING if self._recogniser is None else ScanMode.READ
        parts = self._parser.parse(path, sourcefile, pictures=pictures, members=members, scans=scans)
        has_text, has_scans = False, False
        async with contextlib.aclosing(parts):
            async for part in parts:
                if not isinstance(part, Scan):
                    has_text = (
                        has_text or (isinstance(part, Page) and bool(part.sections)) or isinstance(part, Member)
                    )
                    yield part
                    continue
                has_scans = True
                page = await self._read(part)
                has_text = has_text or (isinstance(page, Page) and bool(page.sections))
                yield page
        if has_scans and not has_text:
            raise UnreadableDocument("The document has no text, and no text was recognised in its images.")

    def read_short(self, content: bytes, sourcefile: str) -> Sequence[Part] | None:
        """See `ingest.ports.Parser.read_short`."""
        return self._parser.read_short(content, sourcefile)

    async def _read(self, scan: Scan) -> Page | Omission:
        """Return the text of a scan; an omission if the scan cannot be read, or is a whole page without text."""
        assert self._recogniser is not None
        try:
            found = await self._recogniser.lines(scan.image)
        except NotRecognised as error:
            return Omission("Unreadable", str(error), scan.number, scan.part)
        if not found and not scan.part:
            return Omission("Unreadable", "The page is an image, and no text was recognised in it.", scan.number)
        return Page(scan.number, lines.sections(found), confidence=lines.confidence(found) if found else None)

"""OpenDocument (ISO/IEC 26300): texts are split at headings; each sheet or slide is a page."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing import containers
from ingest.parsing.content import Head, Omission, Page
from ingest.parsing.frames import Request
from ingest.parsing.office import odf_text, packages
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.text import grids
from ingest.parsing.text.clean import language_tag
from ingest.parsing.text.outline import Outline

_TYPE = "application/vnd.oasis.opendocument."
_KINDS = ("text", "spreadsheet", "presentation")
_MANIFEST = "META-INF/manifest.xml"


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a package declares that it is a text, a spreadsheet, a presentation, or a template of one."""
    kind = containers.package_type(path, head)
    return kind.startswith(_TYPE) and kind.removeprefix(_TYPE).removesuffix("-template") in _KINDS


def parse(request: Request) -> Iterator[Head | Page | Omission]:
    """Yield the head and the pages: one page for each sheet or slide, or a single page for a text.

    Raises:
        Unreadable: The document is damaged or encrypted.
        TooLarge: The document has more than ``max_pages`` pages, or needs too much memory.
    """
    path = Path(request.path)
    kind = containers.package_type(path, path.read_bytes()[:4]).removeprefix(_TYPE).removesuffix("-template")
    with packages.opened(path, request.memory) as package:
        if package.has(_MANIFEST) and b"encryption-data" in package.read(_MANIFEST):
            raise Unreadable("The document is encrypted and needs a password.")
        content = package.xml("content.xml")
        language = _language(package.xml("meta.xml")) if package.has("meta.xml") else ""
        body = next(content.iter(odf_text.OFFICE + kind), None)
        if body is None:
            raise Unreadable("The document is damaged: it has no body.")
        parts = list(_parts(kind, body, request))
    pages = [part for part in parts if isinstance(part, Page)]
    if len(pages) > request.max_pages:
        raise TooLarge(f"The document has {len(pages)} pages. The limit is {request.max_pages} pages.")
    yield Head(_TYPE + kind, 0 if kind == "text" else len(pages), language)
    yield from parts


def _language(meta: etree._Element) -> str:
    elements = meta.iter("{http://purl.org/dc/elements/1.1/}language")
    return language_tag(next((element.text or "" for element in elements), ""))


def _parts(kind: str, body: etree._Element, request: Request) -> Iterator[Page | Omission]:
    if kind == "text":
        outline = Outline()
        odf_text.fill(outline, body)
        yield Page(0, outline.end_page())
        yield from odf_text.omissions(body, 0)
        return
    tag = odf_text.TABLE + "table" if kind == "spreadsheet" else odf_text.DRAW + "page"
    for number, element in enumerate(body.iterchildren(tag), 1):
        outline = Outline()
        if kind == "spreadsheet":
            rows = odf_text.rows_of(element, request.max_characters)
            outline.heading(1, element.get(odf_text.TABLE + "name", ""))
            grids.fill(outline, rows)
        else:
            odf_text.fill_slide(outline, element)
        yield Page(number, outline.end_page())
        yield from odf_text.omissions(element, number)

"""E-books (EPUB 2 and 3): the chapters in reading order, split at headings."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from lxml import etree  # type: ignore[import-untyped]  # ships no types
from selectolax.lexbor import LexborHTMLParser

from ingest.parsing import containers
from ingest.parsing.content import Head, Omission, Page, Part
from ingest.parsing.formats import html
from ingest.parsing.frames import Request
from ingest.parsing.office import packages
from ingest.parsing.office.packages import Package
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.text.clean import flat, language_tag
from ingest.parsing.text.decode import decode
from ingest.parsing.text.outline import Outline

_ENCRYPTION = "META-INF/encryption.xml"
_TEXTS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_MAX_MARKUP_RATIO = 4
"""Maximum ratio of the characters of the chapters, with their markup, to the limit for the text without markup."""
_TITLE = re.compile(r"<title>.*?</title>", re.DOTALL | re.IGNORECASE)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a package declares that it is an e-book (EPUB 3.3, 4.2.6.1)."""
    return containers.package_type(path, head) == "application/epub+zip"


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the single page of a book, and an omission for each missing chapter.

    Raises:
        Unreadable: The book is damaged or protected, or has no text.
        TooLarge: The source of the chapters is too long for a text of ``max_characters``, or needs too much memory.
    """
    outline = Outline()
    missing: list[str] = []
    with packages.opened(Path(request.path), request.memory) as package:
        # Many books have encrypted fonts, which do not matter here.
        if package.has(_ENCRYPTION) and b"xhtml" in package.read(_ENCRYPTION):
            raise Unreadable("The book is protected by digital rights management (DRM). Upload a copy without DRM.")
        directory, book = _book(package)
        language = _first(book, "language")
        outline.heading(0, _first(book, "title"))
        characters = 0
        for name in _chapters(book, directory):
            if not package.has(name):
                missing.append(name)
                continue
            source = decode(package.read(name))
            characters += len(source)
            if characters > _MAX_MARKUP_RATIO * request.max_characters:
                raise TooLarge.characters(request.max_characters)
            # A heading from the chapter's <title> would replace the heading with the title of the book.
            html.fill(outline, LexborHTMLParser(_TITLE.sub("", source)))
    yield Head("application/epub+zip", language=language_tag(language))
    sections = outline.end_page()
    if all(section.text in section.headings for section in sections):  # only headings
        raise Unreadable("The book has no text. Its pages may be pictures.")
    yield Page(0, sections)
    for name in missing:
        yield Omission("Unreadable", "The chapter is missing from the book.", part=name)


def _book(package: Package) -> tuple[str, etree._Element]:
    """Return the directory and the root of the package document (EPUB 3.3, 4.2.6.3.1)."""
    for element in package.xml("META-INF/container.xml").iter("{*}rootfile"):
        name = unquote(element.get("full-path", ""))
        return posixpath.dirname(name), package.xml(name)
    raise Unreadable("The book is damaged: its package document is missing.")


def _first(book: etree._Element, name: str) -> str:
    """Return the text of the first element with this name; empty if the book has no such element."""
    return next((flat("".join(element.itertext())) for element in book.iter(f"{{*}}{name}")), "")


def _chapters(book: etree._Element, directory: str) -> Iterator[str]:
    """Yield the names of the chapters in reading order, without the table of contents."""
    items = {element.get("id"): element for element in book.iter("{*}item")}
    for reference in book.iter("{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is None or item.get("media-type") not in _TEXTS:
            continue
        if "nav" not in item.get("properties", "").split():
            yield posixpath.normpath(posixpath.join(directory, unquote(item.get("href", ""))))

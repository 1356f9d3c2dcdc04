"""XML: small elements become records, large elements become sections, and long texts become paragraphs."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree  # type: ignore[import-untyped]  # ships no types

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.text.clean import flat, language_tag
from ingest.parsing.text.decode import data_of
from ingest.parsing.text.outline import Outline

_MAX_CHARACTERS = 800
"""Maximum number of characters of a record. A longer element becomes a section with a heading."""
_MAX_FIELD_CHARACTERS = 120
"""Maximum number of characters of a field directly in a section. A longer text becomes a paragraph, without the
name of its element. The fields of a record may be longer.
"""
_TITLES = ("title", "head", "heading", "caption", "name", "label")
_PARAGRAPHS = ("p", "para", "simpara", "paragraph")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins with an XML declaration."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<?xml")


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a document. References to declared entities are left out.

    Raises:
        Unreadable: The document is damaged.
        TooLarge: See `data_of`.
    """
    data = data_of(request)
    with damage_is_unreadable("The document"):
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
        )
        root = etree.fromstring(data, parser)
    etree.strip_tags(root, etree.Entity)  # references to entities are nodes, but not elements
    yield Head("application/xml", language=language_tag(root.get(_LANGUAGE, "")))
    outline = Outline()
    _fill(outline, root, 1)
    yield Page(0, outline.end_page())


def _fill(outline: Outline, element: etree._Element, level: int) -> None:
    """Add the content of an element to an outline, with headings of the given level and below."""
    if _is_text(element):
        outline.block(_text(element))
        return
    title = _title(element) if level > 1 else None  # the title is already the heading; the root has no heading
    lines = list(_attributes(element))
    for child in element:
        if child is title:
            continue
        child_lines = list(_lines(child, ""))
        if _is_paragraph(child):
            _flush(outline, lines)
            outline.block(_text(child))
        elif _is_text(child):
            lines += child_lines
        elif sum(map(len, child_lines)) <= _MAX_CHARACTERS:
            _flush(outline, lines)
            outline.block("\n".join(child_lines), whole=True)
        else:
            _flush(outline, lines)
            child_title = _title(child)
            outline.heading(level, _name(child) if child_title is None else _text(child_title))
            _fill(outline, child, level + 1)
    _flush(outline, lines)


def _title(element: etree._Element) -> etree._Element | None:
    return next((child for child in element if _name(child) in _TITLES and _is_text(child)), None)


def _is_paragraph(element: etree._Element) -> bool:
    if not _is_text(element):
        return False
    return _name(element) in _PARAGRAPHS or len(element) > 0 or len(_text(element)) > _MAX_FIELD_CHARACTERS


def _flush(outline: Outline, lines: list[str]) -> None:
    outline.block("\n".join(lines), whole=True)
    lines.clear()


def _lines(element: etree._Element, path: str) -> Iterator[str]:
    """Yield the lines of an element, for example ``ship.name: Petrel``, without empty elements."""
    path = f"{path}.{_name(element)}" if path else _name(element)
    for line in _attributes(element):
        yield f"{path}.{line}"
    if not _is_text(element):
        for child in element:
            yield from _lines(child, path)
    elif text := _text(element):
        yield f"{path}: {text}"


def _attributes(element: etree._Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if "}" not in name and name != "id" and value.strip():  # skip ids and attributes with a namespace
            yield f"{name}: {flat(value)}"


def _is_text(element: etree._Element) -> bool:
    """Return whether an element has no child elements, or mixed content: text besides its child elements."""
    if not len(element):
        return True
    return bool((element.text or "").strip()) or any((child.tail or "").strip() for child in element)


def _text(element: etree._Element) -> str:
    return flat("".join(element.itertext()))


def _name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2]

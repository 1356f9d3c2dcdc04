"""HTML: the main text with headings, list items and table rows, without navigation and scripts."""

import codecs
import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.text.clean import clean, flat, language_tag
from ingest.parsing.text.decode import data_of, decode
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import rows

_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_CHARSET_PEEK = 1024
"""HTML Living Standard 13.2.3.2: the declaration is within the first 1024 bytes."""
# fmt: off
_SKIPPED = frozenset((
    "script", "style", "noscript", "template", "nav", "footer", "aside", "form", "button", "select", "svg", "math",
    "iframe", "object", "canvas", "audio", "video", "head", "dialog",
))
_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "header", "hgroup", "hr", "html", "li", "main", "menu", "ol", "p", "section", "summary",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
))
# fmt: on
_MAX_SPAN = 1000
"""HTML Living Standard 4.9.11: the limit for ``colspan``; this module applies it to ``rowspan``, too."""
_LISTS = frozenset(("ul", "ol", "menu"))
_HEADINGS = {f"h{level}": level for level in range(1, 7)}


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins with the tags of an HTML document."""
    return _HTML.match(head) is not None


def _source(data: bytes) -> str:
    """Decode the source with its declared encoding; as plain text if it has a byte order mark or this fails.

    An encoding in which the declaration itself has other characters is wrong: a page that declares UTF-16 in ASCII
    is not UTF-16 (HTML Living Standard 13.2.3.2).
    """
    declared = _CHARSET.search(data[:_CHARSET_PEEK])
    if declared and not data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = declared[1].decode()
        # Some codecs of Python, such as `undefined`, raise the base class `UnicodeError`.
        with contextlib.suppress(LookupError, UnicodeError):
            if declared[1].decode(encoding) == encoding:
                return data.decode(encoding)
    return decode(data)


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of an HTML document."""
    tree = LexborHTMLParser(_source(data_of(request)))
    root = tree.root
    language = (root.attributes.get("lang") or "") if root is not None else ""
    yield Head("text/html", language=language_tag(language))
    outline = Outline()
    fill(outline, tree)
    yield Page(0, outline.end_page())


def fill(outline: Outline, tree: LexborHTMLParser) -> None:
    """Add the main part of a page to an outline. If this part has no ``h1``, add the page's title as a heading."""
    main = _main(tree)
    title = tree.css_first("title")
    if title is not None and (main is None or main.css_first("h1") is None):
        outline.heading(0, flat(title.text()))
    if main is not None:
        _Walk(outline).run(main)


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    for selector in ("main", "[role=main]", "article"):
        found = tree.css(selector)
        if len(found) == 1:
            return found[0]
    return tree.body


class _Walk:
    """Visits a tree of any depth without recursion, and fills an outline."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._words: list[str] = []
        self._level = 0
        self._lists: list[int | None] = []
        self._marker = ""

    def run(self, root: LexborNode) -> None:
        node = root
        while True:
            child = node.first_child if self._enter(node) else None
            if child is not None:
                node = child
                continue
            while True:
                self._leave(node)
                if node.mem_id == root.mem_id:
                    self._flush()
                    return
                if node.next is not None:
                    node = node.next
                    break
                assert node.parent is not None
                node = node.parent

    def _enter(self, node: LexborNode) -> bool:
        """Process the start of a node; return whether to visit its children."""
        tag = node.tag or ""
        if node.is_text_node:
            self._words.append(re.sub(r"\s+", " ", clean(node.text_content or "")))
            return False
        if not node.is_element_node or tag in _SKIPPED or _is_hidden(node):
            return False
        if tag == "br":
            self._words.append("\n")
            return False
        if tag == "pre":
            self._flush()
            self._outline.block(clean(node.text()).strip("\n"), whole=True)
            return False
        if tag == "table" and _is_data(node):
            self._flush()
            self._table(node)
            return False
        if tag in _HEADINGS:
            self._flush()
            self._level = _HEADINGS[tag]
        elif tag in _BLOCKS:
            self._flush()
            if tag in _LISTS:
                self._lists.append(1 if tag == "ol" else None)
            elif tag == "li":
                self._begin_item()
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in _HEADINGS or tag in _BLOCKS:
            self._flush()
            self._level = 0
        if tag == "li":
            self._marker = ""
        elif tag in _LISTS and self._lists and not _is_hidden(node):
            self._lists.pop()

    def _begin_item(self) -> None:
        counter = self._lists[-1] if self._lists else None
        self._marker = "  " * max(0, len(self._lists) - 1) + ("- " if counter is None else f"{counter}. ")
        if counter is not None:
            self._lists[-1] = counter + 1

    def _flush(self) -> None:
        """End the current paragraph, item or heading."""
        text = "\n".join(flat(line) for line in "".join(self._words).split("\n")).strip()
        self._words = []
        if not text:
            return
        if self._level:
            self._outline.heading(self._level, flat(text))
            self._level = 0
            return
        marker, self._marker = self._marker, ""
        self._outline.block(marker + text, tight=bool(self._lists) and bool(marker))

    def _table(self, table: LexborNode) -> None:
        heads: list[list[str]] = []
        lines: list[list[str]] = []
        above: dict[int, tuple[int, str]] = {}
        for row in table.css("tr"):
            cells = [cell for cell in row.iter() if cell.tag in ("td", "th")]
            texts, above = _texts(cells, above)
            in_head = row.parent is not None and row.parent.tag == "thead"
            if not lines and cells and (in_head or (not heads and all(cell.tag == "th" for cell in cells))):
                heads.append(texts)
            elif any(texts):
                lines.append(texts)
        columns = itertools.zip_longest(*heads, fillvalue="")
        header = [" ".join(dict.fromkeys(filter(None, column))) for column in columns]
        caption = table.css_first("caption")
        if caption is not None:
            self._outline.block(flat(caption.text(separator=" ")))
        self._outline.rows(rows(header, lines), tight=caption is not None)


def _texts(
    cells: Sequence[LexborNode], above: Mapping[int, tuple[int, str]]
) -> tuple[list[str], dict[int, tuple[int, str]]]:
    """Return the texts of a row by column, and the cells that also span rows below it.

    The second value maps a column to the number of further rows and the text of the cell.

    Args:
        cells: The cells of the row.
        above: The cells of earlier rows that span this row.
    """
    texts: list[str] = []
    below: dict[int, tuple[int, str]] = {}
    for cell in (*cells, None):
        while len(texts) in above:
            rows_left, text = above[len(texts)]
            if rows_left > 1:
                below[len(texts)] = (rows_left - 1, text)
            texts.append(text)
        if cell is not None:
            text = flat(cell.text(separator=" "))
            if (rows_left := _span(cell, "rowspan") - 1) > 0:
                below[len(texts)] = (rows_left, text)
            texts += [text, *[""] * (_span(cell, "colspan") - 1)]
    return texts, below


def _span(cell: LexborNode, name: str) -> int:
    value = cell.attributes.get(name) or ""
    return min(max(int(value), 1), _MAX_SPAN) if value.isascii() and value.isdigit() and len(value) < 6 else 1


def _is_data(table: LexborNode) -> bool:
    """Return whether a table contains data. Tables for layout are read as text."""
    nested = len(table.css("table")) > 1
    return not nested and (table.css_first("th") is not None or table.css_first("h1,h2,p") is None)


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or attributes.get("aria-hidden") == "true"

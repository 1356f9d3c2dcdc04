"""Markdown (CommonMark with tables): a section for each heading, with a line for each list item and table row."""

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.text.clean import clean, flat
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline
from ingest.parsing.text.tables import rows

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_MAX_DEPTH = 10_000
"""Maximum nesting depth of the parser, which silently drops deeper text. The limit is so high that the parser
raises `RecursionError` before it drops text. Then the document is refused.
"""
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a Markdown text."""
    text = clean(text_of(request))
    yield Head("text/markdown")
    outline = Outline()
    front_matter = _FRONT_MATTER.match(text)
    if front_matter:
        outline.block(front_matter[1].strip())
        text = text[front_matter.end() :]
    fill(outline, text)
    yield Page(0, outline.end_page())


def fill(outline: Outline, text: str) -> None:
    """Add a Markdown text to an outline."""
    _fill(outline, MarkdownIt("commonmark", {"maxNesting": _MAX_DEPTH}).enable("table").parse(text))


def _fill(outline: Outline, tokens: Sequence[Token]) -> None:
    lists = _Lists()
    table: list[list[str]] | None = None
    heading = 0
    for token in tokens:
        match token.type:
            case "heading_open":
                heading = int(token.tag[1:])
            case "bullet_list_open" | "ordered_list_open":
                lists.open(token)
            case "bullet_list_close" | "ordered_list_close":
                lists.close()
            case "list_item_open":
                lists.item(token)
            case "table_open":
                table = []
            case "tr_open":
                assert table is not None
                table.append([])
            case "table_close":
                assert table is not None
                outline.rows(rows(table[0], table[1:]))
                table = None
            case "inline":
                words = _inline(token.children or ())
                if table is not None:
                    table[-1].append(flat(words))
                elif heading:
                    outline.heading(heading, flat(words))
                    heading = 0
                else:
                    prefix, tight = lists.prefix()
                    outline.block(prefix + words.strip() if words.strip() else "", tight=tight)
            case "fence" | "code_block":
                outline.block(token.content.rstrip(), whole=True)
            case "html_block":
                outline.block(flat(_TAG.sub(" ", token.content)))
            case _:
                pass


class _Lists:
    """The lists that are open at the current token, and the marker of the next item."""

    def __init__(self) -> None:
        self._counters: list[int | None] = []
        self._marker: str | None = None
        self._is_first = False  # whether the next paragraph is the first of an outermost list

    def open(self, token: Token) -> None:
        start = token.attrs.get("start", 1) if token.type == "ordered_list_open" else None
        self._is_first = not self._counters
        self._counters.append(None if start is None else int(start))

    def close(self) -> None:
        self._counters.pop()

    def item(self, token: Token) -> None:
        counter = self._counters[-1]
        self._marker = "- " if counter is None else f"{counter}{token.markup} "
        if counter is not None:
            self._counters[-1] = counter + 1

    def prefix(self) -> tuple[str, bool]:
        """Return the prefix of the next paragraph, and whether it follows the previous one without a blank line."""
        if not self._counters:
            return "", False
        marker, self._marker = self._marker, None
        is_first, self._is_first = self._is_first, False
        indent = "  " * (len(self._counters) - 1)
        return (indent + marker if marker is not None else indent + "  "), not is_first


def _inline(children: Sequence[Token]) -> str:
    parts: list[str] = []
    for child in children:
        match child.type:
            case "text" | "code_inline" | "image":
                parts.append(child.content)
            case "softbreak":
                parts.append(" ")
            case "hardbreak":
                parts.append("\n")
            case "html_inline" if child.content.lower().startswith("<br"):
                parts.append("\n")
            case _:
                pass
    return "".join(parts)

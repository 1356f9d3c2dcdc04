"""Collects a document's headings and blocks into sections with their heading path."""

from collections.abc import Iterable

from ingest.parsing.content import Section


class Outline:
    """Builds the sections of a document while a parser reads the document.

    A heading starts a section, which ends at the next heading. Headings without text between them share a
    section. So only the last section of a page can consist of headings alone.
    """

    def __init__(self) -> None:
        self._path: list[tuple[float, str]] = []
        self._text: list[str] = []
        self._length = 0
        self._whole: list[tuple[int, int]] = []
        self._has_body = False
        self._sections: list[Section] = []

    def heading(self, level: float, text: str) -> None:
        """Add a heading. The outermost headings have the lowest level."""
        if not text:
            return
        if self._has_body:
            self._close()
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        if not self._path or self._path[-1][1] != text:  # a repeated heading is in the path only once
            self._path.append((level, text))
        self._add(text, tight=True)

    def block(self, text: str, *, tight: bool = False, whole: bool = False) -> None:
        """Add a paragraph, a row or an item.

        Args:
            text: The block. An empty block is ignored.
            tight: Whether the block follows the previous block without a blank line.
            whole: Whether the block, for example a row, must not be split if it fits into a passage.
        """
        if text:
            self._add(text, tight=tight and self._has_body)
            self._has_body = True
            if whole:
                self._whole.append((self._length - len(text), self._length))

    def rows(self, rows: Iterable[str], *, tight: bool = False) -> None:
        """Add the rows of a table, without blank lines between them.

        Args:
            rows: The rows. Empty rows are ignored. A row must not be split if it fits into a passage.
            tight: Whether the first row follows the previous block without a blank line.
        """
        for row in filter(None, rows):
            self.block(row, tight=tight, whole=True)
            tight = True

    def end_page(self) -> tuple[Section, ...]:
        """Return the sections since the last call. Headings remain in effect on the next page."""
        self._close()
        sections, self._sections = tuple(self._sections), []
        return sections

    def _add(self, text: str, *, tight: bool) -> None:
        separator = ("\n" if tight else "\n\n") if self._text else ""
        self._text += (separator, text)
        self._length += len(separator) + len(text)

    def _close(self) -> None:
        if self._text:
            path = tuple(text for _, text in self._path)
            self._sections.append(Section(path, "".join(self._text), tuple(self._whole)))
        self._text, self._length, self._whole, self._has_body = [], 0, [], False

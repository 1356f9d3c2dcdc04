"""Render the sample corpus' PDFs from their Markdown sources.

A source is a small part of CommonMark: headings, paragraphs, bullet lists and tables of plain text, with
the comment ``<!-- page break -->`` between pages. What stands between two breaks must fit on one page, so
the page a fact is on can be read off the source. The same source gives the same bytes on every machine: the
creation date is fixed and streams are left uncompressed, since compressed bytes differ between builds of
zlib.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fpdf import FPDF
from fpdf.enums import TableBordersLayout, XPos, YPos
from fpdf.fonts import FontFace
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

HERE: Final = Path(__file__).resolve().parent
SOURCES: Final = HERE / "corpus_src"
CORPUS: Final = HERE / "corpus"
PAGE_BREAK: Final = "<!-- page break -->"
CREATED: Final = datetime(2025, 7, 1, tzinfo=UTC)

MARGIN: Final = 22.0  # millimetres, as are all lengths here
FOOTER: Final = 20.0
LINE: Final = 5.9
FONT: Final = "Helvetica"  # one of the fonts every reader has; nothing to embed
INK: Final = (33, 37, 41)
ACCENT: Final = (18, 78, 102)
RULE: Final = (173, 181, 189)
# Size in points, then the space above and below.
HEADINGS: Final = {"h1": (21.0, 2.0, 4.0), "h2": (16.0, 2.0, 2.5), "h3": (12.5, 2.5, 1.0)}


class SourceError(ValueError):
    """A source that cannot be rendered: unsupported Markdown or characters, or too much for a page."""


class Document(FPDF):
    """An A4 document with one page per section of its source and the page number in each footer."""

    def __init__(self, title: str, pages: int) -> None:
        super().__init__(format="A4")
        self._title, self._pages = title, pages
        self.set_margins(MARGIN, MARGIN)
        self.set_auto_page_break(auto=False, margin=FOOTER)
        self.set_compression(False)
        self.set_title(title)
        self.set_author("Skerry Line")
        self.set_lang("en-GB")
        self.set_producer("examples/build_pdfs.py")  # the library's version would change the bytes
        self.set_creation_date(CREATED)

    def footer(self) -> None:
        """Write the document's title and the page number below a rule (fpdf2 calls this for each page)."""
        self.set_y(-FOOTER)
        self.set_draw_color(*ACCENT)
        self.line(MARGIN, self.get_y(), self.w - MARGIN, self.get_y())
        self.set_font(FONT, size=8.5)
        self.set_text_color(*ACCENT)
        self.cell(self.epw / 2, 8, self._title)
        self.cell(self.epw / 2, 8, f"Page {self.page_no()} of {self._pages}", align="R")

    def add_section(self, blocks: Sequence[SyntaxTreeNode]) -> None:
        """Set the blocks on a new page; raises SourceError if they need more than one."""
        self.add_page()
        for block in blocks:
            self._add_block(block)
        over = self.get_y() - (self.h - FOOTER - 2)
        if over > 0:
            raise SourceError(f"page {self.page_no()} is {over:.0f} mm too long")

    def _add_block(self, block: SyntaxTreeNode) -> None:
        match block.type:
            case "heading" if block.tag in HEADINGS:
                size, above, below = HEADINGS[block.tag]
                self.ln(above)
                self.set_font(FONT, "B", size)
                self.set_text_color(*ACCENT)
                self._write(_text(block), line=size * 0.45)
                self.ln(below)
            case "paragraph":
                self._use_body_font()
                self._write(_text(block))
                self.ln(2)
            case "bullet_list":
                self._use_body_font()
                for item in block.children:
                    self.cell(5, LINE, "-")
                    self._write(_text(item), indent=5)
                self.ln(2)
            case "table":
                self._use_body_font()
                self._add_table(block)
            case other:
                raise SourceError(f"page {self.page_no()}: {block.tag or other} is not supported")

    def _add_table(self, block: SyntaxTreeNode) -> None:
        rows = [[_text(cell) for cell in row.children] for part in block.children for row in part.children]
        # A column is as wide as its longest text, within reason, so that short columns leave room for prose.
        widths = [min(max(max(map(len, column)), 8), 40) for column in zip(*rows, strict=True)]
        heading = FontFace(emphasis="BOLD", color=ACCENT)
        self.ln(0.5)
        self.set_draw_color(*RULE)
        with self.table(
            rows,
            borders_layout=TableBordersLayout.HORIZONTAL_LINES,
            col_widths=widths,
            headings_style=heading,
            line_height=LINE,
            padding=0.4,
            text_align="LEFT",
        ):
            pass
        self.ln(3)

    def _use_body_font(self) -> None:
        self.set_font(FONT, size=11.5)
        self.set_text_color(*INK)

    def _write(self, text: str, *, line: float = LINE, indent: float = 0) -> None:
        self.set_x(MARGIN + indent)
        self.multi_cell(0, line, text, align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)


def _text(node: SyntaxTreeNode) -> str:
    """The node's text on one line; raises SourceError for emphasis, links, nesting and unknown characters."""
    lines = [inline for inline in node.walk() if inline.type == "inline"]
    text = " ".join(line.content.replace("\n", " ") for line in lines)
    kinds = {part.type for line in lines for part in line.children}
    if len(lines) > 1 or not kinds <= {"text", "softbreak"}:
        raise SourceError(f"only plain text is supported here: {text[:60]!r}")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise SourceError(f"{text[error.start]!r} is not in the fonts: {text[:60]!r}") from error
    return text


def render(source: str) -> bytes:
    """Render one Markdown source to the bytes of a PDF.

    Args:
        source: Markdown that begins with a first-level heading, the document's title.

    Raises:
        SourceError: the source has no title, uses Markdown or characters that are not supported, or has
            a section longer than a page.
    """
    sections: list[list[SyntaxTreeNode]] = [[]]
    for block in SyntaxTreeNode(MarkdownIt().enable("table").parse(source)).children:
        if block.type == "html_block" and block.content.strip() == PAGE_BREAK:
            sections.append([])
        else:
            sections[-1].append(block)
    if not sections[0] or sections[0][0].tag != "h1":
        raise SourceError("does not begin with a first-level heading")
    document = Document(_text(sections[0][0]), len(sections))
    for section in sections:
        document.add_section(section)
    return bytes(document.output())


def main() -> int:
    """Render every source, or compare with what is there; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Render the sample corpus' PDFs from examples/corpus_src.",
        epilog="exit codes: 0 done, 1 --check found differences, 2 a source cannot be rendered",
    )
    parser.add_argument("--out", type=Path, default=CORPUS, help="folder for the PDFs (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a PDF is out of date")
    args = parser.parse_args()
    stale = False
    for source in sorted(SOURCES.glob("*.md")):
        target = args.out / f"{source.stem}.pdf"
        try:
            content = render(source.read_text(encoding="utf-8"))
        except SourceError as error:
            print(f"{source.name}: {error}", file=sys.stderr)
            return 2
        if not args.check:
            args.out.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            print(f"wrote {target.name}")
        elif not target.is_file() or target.read_bytes() != content:
            print(f"{target.name} is not what {source.name} renders to", file=sys.stderr)
            stale = True
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

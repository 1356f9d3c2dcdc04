"""Adds the body of a mail to an outline."""

from selectolax.lexbor import LexborHTMLParser

from ingest.parsing.formats import html, plain
from ingest.parsing.text.outline import Outline


def fill_body(outline: Outline, text: str, *, is_html: bool) -> None:
    """Add the body of a mail to an outline."""
    if is_html:
        html.fill(outline, LexborHTMLParser(text))
    else:
        plain.fill(outline, text.replace("\r\n", "\n"), is_prose=True)

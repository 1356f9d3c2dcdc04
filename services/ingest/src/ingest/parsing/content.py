"""The types of a parser's output.

The first item is the `Head`. Then follow the `Page`s, a `Scan` for each image that may contain text, a `Member` for
each file within the file, and an `Omission` for each part that cannot be read. All of them can be serialised,
because they are sent through a pipe.
"""

import msgspec


class Section(msgspec.Struct, frozen=True, array_like=True):
    """A piece of text under one heading.

    Attributes:
        headings: Headings above the section and its own heading, outermost first.
        text: A blank line separates paragraphs. A line break separates items, rows, and lines of verse or code. If
            the document shows the section's heading, the text begins with it.
        whole: Spans of the text that should not be split, for example rows, records or definitions: start and end
            in code points, ordered and disjoint. A span that fits into a passage is not split. A longer span is
            split between lines. Only a line that does not fit into a passage is split further.
    """

    headings: tuple[str, ...]
    text: str
    whole: tuple[tuple[int, int], ...] = ()


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The properties of a document that are known before the first page.

    Attributes:
        content_type: Media type.
        page_count: Number of pages, slides or sheets; 0 if the format has none.
        language: BCP 47 tag that the document declares; empty if it declares none.
        mail: The headers of a mail, by name; empty for other documents.
    """

    content_type: str
    page_count: int = 0
    language: str = ""
    mail: dict[str, str | list[str]] = {}  # msgspec copies it


class Page(msgspec.Struct, frozen=True, tag="page"):
    """The text of a page, a slide or a sheet; a format without pages has one page with number 0.

    The text that is recognised in an image follows in a further `Page` with the number of the image's page.

    Attributes:
        number: Counted from 1; 0 if the format has no pages.
        sections: In reading order; empty if the page has no text.
        picture: The page as JPEG; empty if no picture is requested, the page cannot be drawn, or the picture is too
            large.
        confidence: The confidence of OCR, 0 to 1; None if the text is in the file and was not recognised by OCR.
    """

    number: int
    sections: tuple[Section, ...]
    picture: bytes = b""
    confidence: float | None = None


class Scan(msgspec.Struct, frozen=True, tag="scan"):
    """An image that may contain text to recognise.

    Attributes:
        number: Number of the page, counted from 1; 0 if the format has no pages.
        image: The image as PNG.
        part: Name of the part, for example a picture in a document; empty if the image is the page.
    """

    number: int
    image: bytes
    part: str = ""


class Omission(msgspec.Struct, frozen=True, tag="omission"):
    """A part of a document that could not be read, although the rest was read.

    Attributes:
        kind: Name of the class in `refusals` that describes the reason.
        message: The text for the user who uploaded the document.
        page: Number of the page, from 1; 0 if the omission is not about a page.
        part: Name of the part; empty if the part has no name.
    """

    kind: str
    message: str
    page: int = 0
    part: str = ""


class Member(msgspec.Struct, frozen=True, tag="member"):
    """A file within the file, which becomes a document.

    Attributes:
        name: The path within the file, with slashes; unique, and without control characters.
        content: The bytes of the file.
    """

    name: str
    content: bytes


Part = Head | Page | Scan | Member | Omission
"""An item of a parser's output."""


class MemberLimits(msgspec.Struct, frozen=True):
    """The limits of files within a file: their number, and their total size in bytes."""

    count: int
    bytes: int


NO_MEMBERS = MemberLimits(0, 0)

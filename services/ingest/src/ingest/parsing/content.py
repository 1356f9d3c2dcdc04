"""What a parser says of a document: first a `Head`, then its `Page`s, and what of it was not read.

Plain values, ready to cross a pipe.
"""

import msgspec


class Section(msgspec.Struct, frozen=True, array_like=True):
    """A piece of text under one heading.

    Attributes:
        headings: Headings above and of it, outermost first.
        text: Paragraphs are separated by a blank line; items, rows and lines of verse or code by a line break. It
            begins with its own heading where the document shows one there.
        whole: Spans of the text in code points, in order and apart, that stay together where a passage can hold
            them (rows, records, definitions); where none can, their lines do.
    """

    headings: tuple[str, ...]
    text: str
    whole: tuple[tuple[int, int], ...] = ()


class Head(msgspec.Struct, frozen=True, tag="head"):
    """What is known before the first page.

    Attributes:
        content_type: Media type.
        page_count: Number of pages, slides or sheets; 0 where the format has none.
        language: BCP 47 tag that the document itself names; empty where it names none.
        mail: Of a mail: what its headers say, by name.
    """

    content_type: str
    page_count: int = 0
    language: str = ""
    mail: dict[str, str | list[str]] = {}  # msgspec copies it


class Page(msgspec.Struct, frozen=True, tag="page"):
    """The text of a page, a slide or a sheet; a format without them has one, with number 0.

    Attributes:
        number: Counted from 1; 0 where the format has no pages.
        sections: In reading order; none where the page has no text.
        picture: The page as JPEG; empty where none was asked for, or none could be made.
        confidence: How sure its text is, 0 to 1, where it was recognised in an image; None where the file has it.
    """

    number: int
    sections: tuple[Section, ...]
    picture: bytes = b""
    confidence: float | None = None


class Scan(msgspec.Struct, frozen=True, tag="scan"):
    """An image that may hold text, which is to be recognised.

    Attributes:
        number: Its page, counted from 1; 0 where the format has no pages.
        image: As PNG.
        part: Name of the part that the image is, as of a picture in a document; empty where it is the page.
    """

    number: int
    image: bytes
    part: str = ""


class Omission(msgspec.Struct, frozen=True, tag="omission"):
    """A part of a document that was not read, although the rest was.

    Attributes:
        kind: Name of the class of `refusals` that says why.
        message: For the person who sent the document.
        page: From 1; 0 where it is about no page.
        part: Name of the part; empty where it is about no part with a name.
    """

    kind: str
    message: str
    page: int = 0
    part: str = ""


class Member(msgspec.Struct, frozen=True, tag="member"):
    """A file within the file: a document of its own.

    Attributes:
        name: Its path within, with slashes; unique, and free of control characters.
        content: Its bytes.
    """

    name: str
    content: bytes


Part = Head | Page | Scan | Member | Omission
"""What a parser yields."""


class Room(msgspec.Struct, frozen=True):
    """How many files within a file are unpacked, and how many bytes they have together."""

    count: int
    bytes: int


NO_ROOM = Room(0, 0)

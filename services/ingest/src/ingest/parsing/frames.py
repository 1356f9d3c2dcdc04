"""The messages between the worker and its parsing child: a length of four bytes, then MessagePack.

The worker decodes only the types of this module, and at most `MAX_FRAME` bytes for each message. A child that a
malicious document controls cannot send other values.
"""

import msgspec
from servicekit.child_program import framed

from ingest.parsing.content import Head, Member, Omission, Page, Scan

MAX_FRAME = 256 * 1024 * 1024
"""Maximum bytes of a message of the child."""


class Request(msgspec.Struct, frozen=True):
    """A request to parse a file.

    Attributes:
        path: The file.
        suffix: The suffix of the original file name.
        max_pages: Maximum number of pages; a document with more pages is refused.
        max_characters: Maximum number of characters; a document with more text is refused.
        memory: Limit on the child's address space in bytes.
        cpu_seconds: Limit on the child's CPU time in seconds.
        max_pictures: Number of pages with a picture, counted from the first page.
        max_members: Maximum number of files within this file that are unpacked, in their order.
        max_member_bytes: Limit on the total size of the unpacked files in bytes.
        scans: How to handle images of text, a value of `scans.ScanMode`.
    """

    path: str
    suffix: str
    max_pages: int
    max_characters: int
    memory: int
    cpu_seconds: int
    max_pictures: int = 0
    max_members: int = 0
    max_member_bytes: int = 0
    scans: str = "off"


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of the document."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The document is refused; ``kind`` is the name of a class of `refusals`."""

    kind: str
    message: str


class Defect(msgspec.Struct, frozen=True, tag="defect"):
    """The parser raised an unexpected error."""

    stack: str


Frame = Head | Page | Scan | Member | Omission | Done | Refused | Defect

_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(Request)
_frame: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Return the encoded frame, preceded by its length."""
    return framed(_encoder.encode(frame))


def decode_frame(body: bytes) -> Frame:
    """Decode a frame.

    Raises:
        msgspec.DecodeError: The bytes are not a frame.
    """
    return _frame.decode(body)


def decode_request(body: bytes) -> Request:
    """Decode a request.

    Raises:
        msgspec.DecodeError: The bytes are not a request.
    """
    return _request.decode(body)

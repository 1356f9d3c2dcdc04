"""What crosses the pipe between the worker and its parsing child: MessagePack behind a length of four bytes.

The worker decodes with types: what a child under a hostile document's control can send is text, and no more of it
than `MAX_FRAME`.
"""

from typing import BinaryIO

import msgspec

from ingest.parsing.content import Head, Member, Omission, Page, Scan

MAX_FRAME = 256 * 1024 * 1024
PREFIX = 4
"""Bytes of the length in front of each message."""


class Request(msgspec.Struct, frozen=True):
    """Parse this.

    Attributes:
        path: The file.
        suffix: End of the name that people know it by.
        max_pages: More are refused.
        max_characters: More text is refused.
        memory: Bytes of address space that the child may have.
        cpu_seconds: CPU time that the child may take.
        max_pictures: Pictures are made of so many pages, the first ones.
        max_members: So many files within the file are unpacked, the first ones.
        max_member_bytes: They have so many bytes together.
        scans: What becomes of images of text, a value of `scans.Scans`.
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


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child has started and waits for requests."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """That was all of the document."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The document is refused; ``kind`` is the name of a class of `refusals`."""

    kind: str
    message: str


class Defect(msgspec.Struct, frozen=True, tag="defect"):
    """The parser met an unexpected error."""

    stack: str


Frame = Ready | Head | Page | Scan | Member | Omission | Done | Refused | Defect

_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(Request)
_frame: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode(message: Request | Frame) -> bytes:
    """A message with its length in front."""
    body = _encoder.encode(message)
    return len(body).to_bytes(PREFIX) + body


def length(prefix: bytes) -> int:
    """Length of the message behind a prefix.

    Raises:
        ValueError: It is longer than messages are.
    """
    size = int.from_bytes(prefix)
    if size > MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    return size


def decode_frame(body: bytes) -> Frame:
    """A frame.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _frame.decode(body)


def read_request(stream: BinaryIO) -> Request | None:
    """The next request; None at the end of the stream."""
    prefix = stream.read(PREFIX)
    if len(prefix) < PREFIX:
        return None
    return _request.decode(stream.read(length(prefix)))

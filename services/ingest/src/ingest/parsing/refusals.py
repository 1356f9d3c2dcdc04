"""The errors with which a parser refuses a document. Another attempt would fail in the same way.

Refusal
├── Unreadable      broken, encrypted, empty, without text, or a format that does not match the name
├── Unsupported     a type that is not supported
└── TooLarge        over a limit

They are not service errors (`servicekit.errors`), because that module imports gRPC, which the parsing child does
not need.
"""

from typing import Self


class Refusal(Exception):
    """The base class; the message is for the user who uploaded the document."""


class Unreadable(Refusal):
    """The document cannot be read."""


class Unsupported(Refusal):
    """The type of the document is not supported."""


class TooLarge(Refusal):
    """The document is over a limit."""

    @classmethod
    def characters(cls, limit: int) -> Self:
        """Return the refusal of a document with more characters than the limit."""
        return cls(f"The document has too much text. The limit is {limit} characters.")

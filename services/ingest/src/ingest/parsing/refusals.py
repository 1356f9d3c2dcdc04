"""Why a parser refuses a document: its own fault, so trying again does not help.

Refusal
├── Unreadable      broken, encrypted, empty, without text, or not what its name says
├── Unsupported     of a type that is not read here
└── TooLarge        over a limit

Not the platform's errors (`servicekit.errors`): those load gRPC, which the parsing child has no use for.
"""

from typing import Self


class Refusal(Exception):
    """Base of them; the message is for the person who sent the document."""


class Unreadable(Refusal):
    """The document cannot be read."""


class Unsupported(Refusal):
    """The document is of a type that is not read here."""


class TooLarge(Refusal):
    """The document is over a limit."""

    @classmethod
    def characters(cls, limit: int) -> Self:
        """Return the refusal of a document with more characters than the limit."""
        return cls(f"The document has more text than the {limit} characters that are read.")

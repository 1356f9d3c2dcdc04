"""Converts the headers of a mail to metadata and to searchable text."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import getaddresses, parsedate_to_datetime

from ingest.parsing.text.clean import flat
from ingest.parsing.text.outline import Outline

_MAX_CHARACTERS = 500
_MAX_ADDRESSES = 30
"""Maximum number of addresses of one header, because the size of metadata is limited."""


@dataclass(frozen=True, slots=True)
class Address:
    """A name and an address; one of them may be empty."""

    name: str
    address: str

    def __str__(self) -> str:
        """Return the name and the address in the notation ``Name <address>``."""
        if not self.name or self.name == self.address:
            return self.address
        return f"{self.name} <{self.address}>" if self.address else self.name


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of a mail.

    Attributes:
        subject: The subject.
        sender: The unparsed header of the sender.
        senders: The addresses in this header.
        to: The recipients.
        cc: The recipients of a copy.
        date: The date; None if it is missing or invalid.
        message_id: The id of the mail, with its angle brackets.
        in_reply_to: The ids of the mails that this mail answers.
    """

    subject: str
    sender: str
    senders: Sequence[Address]
    to: Sequence[Address]
    cc: Sequence[Address]
    date: datetime.datetime | None
    message_id: str = ""
    in_reply_to: str = ""

    def metadata(self) -> dict[str, str | list[str]]:
        """Return the headers as metadata: addresses in lower case without names; the name if the address is empty.

        The result is never empty, because an empty `Head.mail` means that the document is not a mail.
        """
        fields: dict[str, str | list[str]] = {
            "subject": flat(self.subject)[:_MAX_CHARACTERS],
            "from": _listed(self.senders),
            "to": _listed(self.to),
            "cc": _listed(self.cc),
            "date": self.date.isoformat() if self.date else "",
            "message_id": self.message_id.strip()[:_MAX_CHARACTERS],
            "in_reply_to": self.in_reply_to.strip()[:_MAX_CHARACTERS],
        }
        return {name: value for name, value in fields.items() if value} or {"subject": ""}

    def fill(self, outline: Outline) -> None:
        """Add the headers to an outline: the subject as a heading, the others as lines."""
        outline.heading(1, flat(self.subject)[:_MAX_CHARACTERS])
        lines = {
            "From": ", ".join(map(str, self.senders)) or flat(self.sender),
            "To": ", ".join(map(str, self.to[:_MAX_ADDRESSES])),
            "Cc": ", ".join(map(str, self.cc[:_MAX_ADDRESSES])),
            "Date": self.date.strftime("%Y-%m-%d %H:%M %z").strip() if self.date else "",
        }
        outline.block("\n".join(f"{name}: {value}" for name, value in lines.items() if value), whole=True)


def addresses(text: str) -> list[Address]:
    """Return the addresses of a header, in lower case, each with its name."""
    found = (Address(flat(name), address.strip().lower()) for name, address in getaddresses([text]))
    return [address for address in found if address.name or address.address]


def mail_date(text: str) -> datetime.datetime | None:
    """Return the date of a header, or None if the header is empty or invalid."""
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None


def _listed(items: Sequence[Address]) -> list[str]:
    return [(item.address or item.name)[:_MAX_CHARACTERS] for item in items[:_MAX_ADDRESSES]]

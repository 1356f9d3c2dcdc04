"""Mails saved by Outlook (MS-OXMSG): the text of the body. Attachments become documents."""

from collections.abc import Iterator
from pathlib import Path

import oxmsg

from ingest.parsing import containers
from ingest.parsing.content import Head, Omission, Page, Part
from ingest.parsing.frames import Request
from ingest.parsing.mail.headers import Address, Headers, addresses, mail_date
from ingest.parsing.mail.members import Attachments
from ingest.parsing.mail.text import fill_body
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import TooLarge
from ingest.parsing.text.outline import Outline

_MEMORY_SHARE = 8
"""The size of a mail is limited to the memory limit divided by this, because the library loads the mail."""
_TO, _CC = 1, 2  # MS-OXOMSG 2.2.3.1.2, PidTagRecipientType
_RECIPIENT_TYPE = 0x0C15
_RTF = 0x1009
"""PidTagRtfCompressed."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a compound file with the properties of a message (MS-OXMSG 2.4)."""
    return containers.has_stream(path, head, "__properties_version1.0", "__nameid_version1.0")


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the single page of a mail, then its attachments.

    Raises:
        Unreadable: The mail is damaged.
        TooLarge: The mail is too large for ``memory``.
    """
    path = Path(request.path)
    max_bytes = request.memory // _MEMORY_SHARE
    if path.stat().st_size > max_bytes:
        raise TooLarge(f"The mail has {path.stat().st_size} bytes. The limit is {max_bytes} bytes.")
    with damage_is_unreadable("The mail"):
        mail = oxmsg.Message.load(str(path))
        headers = _headers(mail)
    yield Head("application/vnd.ms-outlook", mail=headers.metadata())
    outline = Outline()
    headers.fill(outline)
    with damage_is_unreadable("The mail"):
        text, source = mail.body, mail.html_body
        is_rtf = not text and not source and mail.properties.binary_prop_value(_RTF)
        if text and text.strip():
            fill_body(outline, text, is_html=False)
        elif source:
            fill_body(outline, source, is_html=True)
    yield Page(0, outline.end_page())
    if is_rtf:
        yield Omission("Unsupported", "The body of the mail is only rich text (RTF), which is not read in a mail.")
    yield from _attachments(mail, Attachments(request))


def _headers(mail: oxmsg.Message) -> Headers:
    by_name = {name.lower(): value for name, value in mail.message_headers.items()}
    recipients: dict[int, list[Address]] = {_TO: [], _CC: []}
    for recipient in mail.recipients:
        kind = recipient.properties.int_prop_value(_RECIPIENT_TYPE)
        recipients.get(kind or _TO, []).append(Address(recipient.name, recipient.email_address.lower()))
    sender = mail.sender or ""
    return Headers(
        subject=mail.subject,
        sender=sender,
        senders=addresses(sender),
        to=recipients[_TO],
        cc=recipients[_CC],
        date=mail_date(by_name.get("date", "")) or mail.sent_date,
        message_id=by_name.get("message-id", ""),
        in_reply_to=by_name.get("in-reply-to", ""),
    )


def _attachments(mail: oxmsg.Message, attachments: Attachments) -> Iterator[Part]:
    for attachment in mail.attachments:
        with damage_is_unreadable("An attachment of the mail"):
            name, content = attachment.file_name or "attachment", attachment.file_bytes
        if content is None:
            yield Omission(
                "Unsupported",
                "The attachment is a mail or an Outlook object. Neither is read within a mail.",
                part=name,
            )
        else:
            yield from attachments.accepted(name.replace("/", "_"), content)
    yield from attachments.left_out()

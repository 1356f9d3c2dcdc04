"""E-mail (RFC 5322, MIME): the texts of the body. Attachments become documents."""

import email
import email.policy
import re
from collections.abc import Iterator, Sequence
from email.message import EmailMessage, MIMEPart
from pathlib import Path

from ingest.parsing.content import Head, Member, Omission, Page, Part
from ingest.parsing.frames import Request
from ingest.parsing.mail.headers import Headers, addresses, mail_date
from ingest.parsing.mail.members import Attachments
from ingest.parsing.mail.text import fill_body
from ingest.parsing.office.ooxml import damage_is_unreadable
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.text.decode import decode
from ingest.parsing.text.outline import Outline

_FIELD = re.compile(rb"([!-9;-~]+):[^\n]*\r?\n(?:[ \t][^\n]*\r?\n)*")
_ORIGIN_FIELDS = frozenset((b"from", b"return-path", b"received", b"delivered-to"))
_COMMON_FIELDS = frozenset((b"message-id", b"mime-version", b"date", b"to", b"subject"))
_MEMORY_SHARE = 8
"""The size of a mail is limited to the memory limit divided by this, because the library keeps several copies."""
_SIGNATURES = frozenset(
    ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")
)
_ENCRYPTED = frozenset(("application/pkcs7-mime", "application/x-pkcs7-mime"))


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins with header fields of a mail: the sender or a trace field, and two others."""
    names, end = set(), 0
    while field := _FIELD.match(head, end):
        names.add(field[1].lower())
        end = field.end()
    return bool(names & _ORIGIN_FIELDS) and len(names & (_COMMON_FIELDS | _ORIGIN_FIELDS)) > 2


def parse(request: Request) -> Iterator[Part]:
    """Yield the head and the single page of a mail, then its attachments.

    Raises:
        Unreadable: The mail is damaged or encrypted.
        TooLarge: The mail is too large for ``memory``.
    """
    path = Path(request.path)
    max_bytes = request.memory // _MEMORY_SHARE
    if path.stat().st_size > max_bytes:
        raise TooLarge(f"The mail has {path.stat().st_size} bytes. The limit is {max_bytes} bytes.")
    with damage_is_unreadable("The mail"), path.open("rb") as file:
        mail = email.message_from_binary_file(file, policy=email.policy.default)
    with damage_is_unreadable("The mail"):
        if _is_encrypted(mail):
            raise Unreadable("The mail is encrypted.")
        headers = _headers(mail)
    yield Head("message/rfc822", mail=headers.metadata())
    outline = Outline()
    headers.fill(outline)
    with damage_is_unreadable("The mail"):
        bodies = _bodies(mail)
        for body in bodies:
            fill_body(outline, _text(body), is_html=body.get_content_type() == "text/html")
    yield Page(0, outline.end_page())
    yield from _attachments(mail, bodies, Attachments(request))


def _is_encrypted(mail: EmailMessage) -> bool:
    content_type = mail.get_content_type()
    if content_type in _ENCRYPTED:
        return mail.get_param("smime-type") != "signed-data"
    return content_type == "multipart/encrypted"


def _headers(mail: EmailMessage) -> Headers:
    def text(name: str) -> str:
        return str(mail.get(name, ""))

    return Headers(
        subject=text("subject"),
        sender=text("from"),
        senders=addresses(text("from")),
        to=addresses(text("to")),
        cc=addresses(text("cc")),
        date=mail_date(text("date")),
        message_id=text("message-id"),
        in_reply_to=text("in-reply-to"),
    )


def _bodies(mail: EmailMessage) -> list[MIMEPart]:
    """Return the texts that mail programs show, in order.

    Among alternatives, plain text has priority over HTML, if it is not empty.
    """
    shown = list(_shown(mail))
    if not shown and (only := mail.get_body(("plain", "html"))) is not None:
        return [only]  # the only text has a file name
    return shown


def _shown(part: MIMEPart) -> Iterator[MIMEPart]:
    content_type = part.get_content_type()
    if content_type == "multipart/alternative":
        alternatives = [list(_shown(inner)) for inner in part.iter_parts()]
        readable = [shown for shown in alternatives if any(_text(body).strip() for body in shown)]
        plain = (shown for shown in readable if all(body.get_content_subtype() == "plain" for body in shown))
        # Without plain text, the last alternative is the richest one (RFC 2046, 5.1.4).
        yield from next(plain, readable[-1] if readable else ())
    elif content_type == "multipart/related":
        parts = list(part.iter_parts())
        start = part.get_param("start")  # the root; by default the first part (RFC 2387, 3.2)
        root = next((each for each in parts if start and each["content-id"] == start), parts[0] if parts else None)
        if root is not None:
            yield from _shown(root)
    elif content_type.startswith("multipart/"):
        for inner in part.iter_parts():
            yield from _shown(inner)
    elif content_type in ("text/plain", "text/html") and not _is_file(part):
        yield part


def _is_file(part: MIMEPart) -> bool:
    try:
        with damage_is_unreadable("An attachment of the mail"):
            return part.is_attachment() or part.get_filename() is not None
    except Unreadable:
        return True  # `_attachments` reports the damage


def _text(part: MIMEPart) -> str:
    """Decode the text of a part with its declared charset. If this fails, detect the encoding."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    try:
        return data.decode(part.get_content_charset("utf-8"))
    except (LookupError, ValueError):  # some codecs raise `UnicodeError`; a name with NUL raises `ValueError`
        return decode(data) if data else ""


def _attachments(
    mail: EmailMessage, bodies: Sequence[MIMEPart], attachments: Attachments
) -> Iterator[Member | Omission]:
    pictures = 0
    body_ids = {id(body) for body in bodies}
    for part in _leaves(mail):
        if id(part) in body_ids:
            continue
        try:
            with damage_is_unreadable("An attachment of the mail"):
                if _is_inline_picture(part):
                    pictures += 1
                    continue
                files = list(_files(part))
        except Unreadable as refusal:
            yield Omission("Unreadable", str(refusal))
            continue
        for name, content in files:
            yield from attachments.accepted(name.replace("/", "_"), content)
    if pictures:
        yield Omission("Unsupported", f"Pictures in the text of the mail are not read: {pictures}.")
    yield from attachments.left_out()


def _is_inline_picture(part: MIMEPart) -> bool:
    return part.get_content_maintype() == "image" and bool(part["content-id"]) and not part.is_attachment()


def _files(part: MIMEPart) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the files in a part: attachments and mails, without signatures."""
    content_type = part.get_content_type()
    if content_type in _SIGNATURES:
        return
    if content_type == "message/rfc822":
        for inner in part.iter_parts():
            yield part.get_filename() or f"{inner.get('subject') or 'message'}.eml", inner.as_bytes()
    elif part.get_content_maintype() != "text" or part.is_attachment() or part.get_filename() is not None:
        data = part.get_payload(decode=True)
        if isinstance(data, bytes):
            yield part.get_filename() or "attachment", data


def _leaves(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts with content, in order. A mail within the mail counts as one part."""
    if part.get_content_maintype() != "multipart":
        yield part
        return
    for inner in part.iter_parts():
        yield from _leaves(inner)

from collections.abc import Callable
from email.message import EmailMessage
from typing import Any

import pytest
from ingest.parsing.content import Head, Member, Omission, Page, Part
from ingest.parsing.formats import mail as mail_format
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable

ReadMail = Callable[[EmailMessage | bytes], list[Part]]


@pytest.fixture
def read_mail(tmp_path: object) -> ReadMail:
    """Return a function that parses a mail, with a limit of three attachments and a thousand bytes."""

    def read(mail: EmailMessage | bytes) -> list[Part]:
        path = f"{tmp_path}/mail"
        with open(path, "wb") as file:  # of a test
            file.write(mail if isinstance(mail, bytes) else mail.as_bytes())
        return list(
            mail_format.parse(Request(path, ".eml", 10, 100_000, 1024**3, 60, max_members=3, max_member_bytes=1000))
        )

    return read


def written(body: str = "The ferry leaves at nine.", **headers: str) -> EmailMessage:
    """Return a mail."""
    mail = EmailMessage()
    defaults = {
        "From": "Ann Marsh <Ann@Example.org>",
        "To": "Bo <bo@example.org>, crew@example.org",
        "Subject": "Fahrplan für März",
        "Date": "Tue, 03 Mar 2026 09:15:00 +0100",
        "Message-ID": "<1@example.org>",
        **headers,
    }
    for name, value in defaults.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(body)
    return mail


def texts(parts: list[Part]) -> str:
    return "\n\n".join(s.text for part in parts if isinstance(part, Page) for s in part.sections)


def test_headers_are_metadata_and_text(read_mail: ReadMail) -> None:
    """Encoded words are decoded, addresses are in lower case, and the subject is the heading."""
    head, page = read_mail(written())
    assert isinstance(head, Head)
    assert head.content_type == "message/rfc822"
    assert head.mail == {
        "subject": "Fahrplan für März",
        "from": ["ann@example.org"],
        "to": ["bo@example.org", "crew@example.org"],
        "date": "2026-03-03T09:15:00+01:00",
        "message_id": "<1@example.org>",
    }
    assert isinstance(page, Page)
    assert page.sections[0].headings == ("Fahrplan für März",)
    assert texts([page]).endswith(
        "From: Ann Marsh <ann@example.org>\nTo: Bo <bo@example.org>, crew@example.org\n"
        "Date: 2026-03-03 09:15 +0100\n\nThe ferry leaves at nine."
    )


def test_the_readable_body(read_mail: ReadMail) -> None:
    """The plain alternative of the body is read; if it is missing or empty, HTML without tags. Wrong charsets are
    detected.
    """
    for plain, read in (("Plain words.", "Plain words."), (" \n", "Marked words")):
        both = written(plain)
        both.add_alternative("<p>Marked <b>words</b></p>", subtype="html")
        assert texts(read_mail(both)).endswith(f"\n\n{read}")
    both = written(" \n")
    both.add_alternative("<p>Marked</p>", subtype="html")
    rich: Any = both.get_payload(1)
    rich.make_mixed()
    rich.add_attachment("<p>words</p>", subtype="html", disposition="inline")
    assert texts(read_mail(both)).endswith("\n\nMarked\n\nwords")
    body = EmailMessage()
    body.set_content(" \n")
    body.add_alternative("<p>Marked words</p>", subtype="html")
    related = written()
    related.clear_content()
    related.make_related()
    related.attach(body)
    related.add_related(b"GIF89a", maintype="image", subtype="gif", cid="<logo>")
    assert texts(read_mail(related)).endswith("\n\nMarked words")
    reversed_order = written()
    reversed_order.set_content("<p>Marked words</p>", subtype="html")
    reversed_order.add_alternative(" \n")
    assert texts(read_mail(reversed_order)).endswith("\n\nMarked words")
    html = written()
    html.set_content("<style>p{}</style><p>Marked <b>words</b></p><ul><li>one<li>two</ul>", subtype="html")
    assert texts(read_mail(html)).endswith("\n\nMarked words\n- one\n- two")
    raw = written().as_bytes().replace(b"The ferry", "Die Fähre".encode("latin-1"))
    assert "Die Fähre leaves" in texts(read_mail(raw))
    for charset in (b"undefined", b'"a\0b"'):
        assert "The ferry leaves" in texts(read_mail(written().as_bytes().replace(b'"utf-8"', charset)))


def test_all_texts_of_the_body_are_read(read_mail: ReadMail) -> None:
    """A mailing list adds a plain footer to a mail in HTML. A mail program may put attachments between texts."""
    listed = written()
    listed.set_content("<p>Marked <b>words</b></p>", subtype="html")
    listed.add_attachment("Leave the list here.", disposition="inline")
    assert texts(read_mail(listed)).endswith("\n\nMarked words\n\nLeave the list here.")
    mail = written("Before the plan.")
    mail.add_attachment(b"%PDF-1.7 ...", maintype="application", subtype="pdf", filename="plan.pdf")
    mail.add_attachment("After the plan.", disposition="inline")
    parts = read_mail(mail)
    assert texts(parts).endswith("\n\nBefore the plan.\n\nAfter the plan.")
    assert [part.name for part in parts if isinstance(part, Member)] == ["plan.pdf"]


def test_a_named_text(read_mail: ReadMail) -> None:
    """A text with a file name is a file, unless the mail has no other text."""
    mail = written()
    mail.add_attachment("Tides.", filename="tides.txt", disposition="inline")
    assert [part.name for part in read_mail(mail) if isinstance(part, Member)] == ["tides.txt"]
    mail = written()
    mail.set_content("Tides.", filename="tides.txt", disposition="inline")
    parts = read_mail(mail)
    assert texts(parts).endswith("\n\nTides.")
    assert len(parts) == 2


def test_attachments_are_files(read_mail: ReadMail) -> None:
    """An attachment becomes a file within the file. Its encoded form is not part of the text."""
    mail = written()
    mail.add_attachment(b"%PDF-1.7 ...", maintype="application", subtype="pdf", filename="Pläne/März.pdf")
    mail.add_attachment("a;b", filename="list.csv")
    mail.add_attachment("c;d", filename="list.csv")
    parts = read_mail(mail)
    assert [(part.name, part.content) for part in parts if isinstance(part, Member)] == [
        ("Pläne_März.pdf", b"%PDF-1.7 ..."),
        ("list.csv", b"a;b\n"),
        ("list (2).csv", b"c;d\n"),
    ]
    assert "JVBER" not in texts(parts)


def test_a_mail_in_a_mail(read_mail: ReadMail) -> None:
    """A mail within a mail becomes a file within the file, with its own attachments."""
    inner = written("Inner words.", Subject="Re: tides")
    outer = written()
    outer.add_attachment(inner)
    [member] = [part for part in read_mail(outer) if isinstance(part, Member)]
    assert member.name == "Re: tides.eml"
    assert "Inner words." in texts(read_mail(member.content))


def test_omissions_are_reported(read_mail: ReadMail) -> None:
    """Attachments over the limits and pictures in the text cause omissions. Signatures are skipped."""
    mail = written()
    mail.add_attachment(b"x" * 2000, maintype="application", subtype="pdf", filename="large.pdf")
    for number in range(4):
        mail.add_attachment(b"x", maintype="application", subtype="pdf", filename=f"{number}.pdf")
    mail.add_attachment(b"x", maintype="application", subtype="pgp-signature", filename="signature.asc")
    mail.add_attachment(b"x", maintype="image", subtype="png", cid="<logo>", disposition="inline")
    parts = read_mail(mail)
    assert [part.name for part in parts if isinstance(part, Member)] == ["0.pdf", "1.pdf", "2.pdf"]
    assert [(part.kind, part.message[-2:]) for part in parts if isinstance(part, Omission)] == [
        ("Unsupported", "1."),
        ("TooLarge", "2."),
    ]


@pytest.mark.parametrize("media_type", ["application/pdf", "text/plain"])
def test_a_damaged_attachment_is_an_omission(read_mail: ReadMail, media_type: str) -> None:
    """An attachment whose headers the library cannot parse is an omission. The other attachments are read."""
    mail = written()
    for name in ("damaged.pdf", "good.pdf"):
        mail.add_attachment(b"x", maintype="application", subtype="pdf", filename=name)
    content = mail.as_bytes().replace(b'filename="damaged.pdf"', b"filename*=u\0f''damaged.pdf")
    parts = read_mail(content.replace(b"application/pdf", media_type.encode(), 1))
    assert [part.name for part in parts if isinstance(part, Member)] == ["good.pdf"]
    [omission] = [part for part in parts if isinstance(part, Omission)]
    assert "An attachment of the mail is damaged" in omission.message


def test_an_encrypted_mail_is_refused(read_mail: ReadMail) -> None:
    """The refusal says that the mail is encrypted."""
    mail = written()
    mail.replace_header("Content-Type", 'application/pkcs7-mime; smime-type="enveloped-data"')
    with pytest.raises(Unreadable, match="encrypted"):
        read_mail(mail)


def test_mails_are_recognised(tmp_path: object, read_parts: Callable[..., list[Part]]) -> None:
    """A mail is recognised by its first fields under any name. A text that begins with a word and a colon is not a
    mail.
    """
    content = written().as_bytes()
    for name, expected in (("mail", "message/rfc822"), ("mail.eml", "message/rfc822"), ("mail.txt", "text/plain")):
        head = read_parts(content, name)[0]
        assert isinstance(head, Head)
        assert head.content_type == expected
    head = read_parts(b"From: the harbour\nSubject: tides\n\nText.", "notes")[0]
    assert isinstance(head, Head)
    assert head.content_type == "text/plain"

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from causeway_testing.ingest.compound import OutlookMail
from ingest.parsing.child import parse
from ingest.parsing.content import Head, Member, Omission, Page, Part
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable
from PIL import Image

HEADERS = (
    "From: Ann Marsh <Ann@Example.org>\r\nMessage-ID: <1@example.org>\r\nDate: Tue, 03 Mar 2026 09:15:00 +0100\r\n"
)


@pytest.fixture
def read_mail(tmp_path: Path) -> Callable[[bytes], list[Part]]:
    """Return a function that parses a mail like the child, but in this process."""

    def read(content: bytes) -> list[Part]:
        path = tmp_path / "original"
        path.write_bytes(content)
        request = Request(str(path), ".msg", 10, 100_000, 1024**3, 60, max_members=9, max_member_bytes=10_000)
        return list(parse(request))

    return read


def test_a_mail_of_outlook(read_mail: Callable[[bytes], list[Part]]) -> None:
    """Headers, recipients by kind, body and attachments are read. An attached object is an omission."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(picture, "PNG")
    mail = OutlookMail(
        "Fahrplan für März",
        "The ferry leaves at nine.\r\n",
        headers=HEADERS,
        recipients=[("Bo", "Bo@example.org", 1), ("Crew", "crew@example.org", 2)],
        attachments=[("plan.csv", b"a;b"), ("red.png", picture.getvalue()), ("inner", None)],
    )
    head, page, *rest = read_mail(bytes(mail))
    assert head == Head(
        "application/vnd.ms-outlook",
        mail={
            "subject": "Fahrplan für März",
            "from": ["ann@example.org"],
            "to": ["bo@example.org"],
            "cc": ["crew@example.org"],
            "date": "2026-03-03T09:15:00+01:00",
            "message_id": "<1@example.org>",
        },
    )
    assert isinstance(page, Page)
    assert page.sections[0].text.endswith("\n\nThe ferry leaves at nine.")
    assert [part.name for part in rest if isinstance(part, Member)] == ["plan.csv", "red.png"]
    assert [part.part for part in rest if isinstance(part, Omission)] == ["inner"]


def test_a_body_of_html(read_mail: Callable[[bytes], list[Part]]) -> None:
    """The HTML body is read if the mail has no plain text."""
    mail = OutlookMail("Tides", html=b"<p>High <b>water</b></p>", headers=HEADERS)
    _, page = read_mail(bytes(mail))
    assert isinstance(page, Page)
    assert page.sections[0].text.endswith("\n\nHigh water")


def test_a_damaged_mail_is_refused(read_mail: Callable[[bytes], list[Part]]) -> None:
    """The refusal says that the mail is damaged."""
    content = bytes(OutlookMail("Tides", "x" * 5000))
    with pytest.raises(Unreadable, match="damaged"):
        read_mail(content[:-512] + b"\xff" * 512)  # the table of sectors

import pytest
from ingest.parsing.content import Head, Page
from ingest.parsing.formats.subtitles import parse
from ingest.parsing.refusals import Unreadable

from ..conftest import parsed


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (
            "WEBVTT\n\nNOTE a comment\n\n1\n00:01.500 --> 00:04.000 align:start\n<v Ann>The <i>ferry</i>\nleaves."
            "\n\n01:00:05.000 --> 01:00:06.000\nAt nine.\n",
            "text/vtt",
        ),
        (
            "\ufeff1\r\n00:00:01,500 --> 00:00:04,000\r\nAnn: The <i>ferry</i>\r\nleaves.\r\n\r\n"
            "2\r\n01:00:05,000 --> 01:00:06,000\r\nAt nine.\r\n",
            "application/x-subrip",
        ),
    ],
)
def test_subtitles_have_times(content: str, kind: str) -> None:
    """Each subtitle is a line with its start time, without markup. A new paragraph begins after a pause."""
    head, page = parsed(parse, content.encode())
    assert head == Head(kind)
    assert isinstance(page, Page)
    assert page.sections[0].text == "[00:00:01] Ann: The ferry leaves.\n\n[01:00:05] At nine."


def test_a_file_without_subtitles_is_refused() -> None:
    """The refusal says that the file has no subtitles."""
    for content in ("WEBVTT\n", "1\n\n"):
        with pytest.raises(Unreadable):
            parsed(parse, content)

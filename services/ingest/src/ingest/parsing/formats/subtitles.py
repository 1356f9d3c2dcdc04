"""Subtitles (SubRip, WebVTT): each subtitle becomes a line that begins with its start time."""

import re
from collections.abc import Iterator
from pathlib import Path

import pysubs2

from ingest.parsing.content import Head, Page
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable
from ingest.parsing.text.clean import flat
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_VTT = re.compile(rb"(?:\xef\xbb\xbf)?WEBVTT(?:\s|\Z)")
_SRT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\d+\s*\r?\n\d+:\d\d:\d\d[,.]\d{3} --> \d+:\d\d:\d\d[,.]\d{3}")
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+([^>]+)>")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_PARAGRAPH_GAP_MS = 2_000
"""Minimum time without a subtitle, in milliseconds, after which a new paragraph begins."""


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether a text begins with WebVTT's signature, or with a number and two times, as in SubRip."""
    return _VTT.match(head) is not None or _SRT.match(head) is not None


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of subtitles.

    Raises:
        Unreadable: The subtitles are damaged, or the file has none.
    """
    text = text_of(request).removeprefix("\ufeff")
    is_vtt = text.startswith("WEBVTT")
    try:
        cues = pysubs2.SSAFile.from_string(text, format_="vtt" if is_vtt else "srt", keep_unknown_html_tags=True)
    except (pysubs2.exceptions.Pysubs2Error, ValueError, IndexError) as error:
        raise Unreadable("The subtitles are damaged: their times cannot be read.") from error
    yield Head("text/vtt" if is_vtt else "application/x-subrip")
    outline = Outline()
    end = None
    for cue in cues:
        words = flat(_TAG.sub("", _VOICE.sub(r"\1: ", cue.text.replace("\\N", " ").replace("\n", " "))))
        if words:
            tight = end is not None and cue.start - end < _PARAGRAPH_GAP_MS
            outline.block(f"[{_time(cue.start)}] {words}", tight=tight)
            end = cue.end
    sections = outline.end_page()
    if not sections:
        raise Unreadable("The file has no subtitles.")
    yield Page(0, sections)


def _time(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"

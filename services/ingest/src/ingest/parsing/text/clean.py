"""Text as it may be stored: composed Unicode without characters that nobody can see."""

import re
import unicodedata

# Controls except tab and line feed, zero-width spaces and marks of byte order, noncharacters, lone surrogates, and
# the soft hyphen. Joiners stay: emoji and Indic scripts need them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\ufffe\uffff\ud800-\udfff]")
LINE_BREAK = re.compile("\r\n?|\x85|\u2028|\u2029|\x0b|\x0c")
_BLANK = re.compile(r"[^\S\n]+")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})


def clean(text: str) -> str:
    """The text with one kind of line break, composed (NFC), ligatures of Latin taken apart."""
    return unicodedata.normalize("NFC", _UNSEEN.sub("", LINE_BREAK.sub("\n", text))).translate(_LIGATURES)


def flat(text: str) -> str:
    """The cleaned text on one line, with single spaces."""
    return " ".join(clean(text).split())


def collapse(text: str) -> str:
    """The cleaned text with its line breaks, but single spaces and no white space at the ends of lines."""
    return "\n".join(_BLANK.sub(" ", line).strip() for line in clean(text).split("\n")).strip()

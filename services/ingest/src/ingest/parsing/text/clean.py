"""Normalises text: composed Unicode without invisible characters."""

import re
import unicodedata

# Controls except tab and line feed, zero-width spaces, byte order marks, noncharacters, lone surrogates, and the
# soft hyphen. Joiners are kept, because emoji and Indic scripts need them.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u2060\ufeff\ufffe\uffff\ud800-\udfff]")
LINE_BREAK = re.compile("\r\n?|\x85|\u2028|\u2029|\x0b|\x0c")
_BLANK = re.compile(r"[^\S\n]+")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})


def clean(text: str) -> str:
    r"""Return the text in NFC with ``\n`` as the only line break.

    Invisible characters are removed. Latin ligatures are replaced by their letters.
    """
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", LINE_BREAK.sub("\n", text))).translate(_LIGATURES)


def flat(text: str) -> str:
    """Return the cleaned text on one line, with single spaces."""
    return " ".join(clean(text).split())


def language_tag(text: str) -> str:
    """Return a declared language if it has the form of a language tag (RFC 5646), otherwise an empty string."""
    return text if text.isascii() and text.replace("-", "").isalnum() else ""


def collapse(text: str) -> str:
    """Return the cleaned text with its line breaks, but with single spaces and stripped lines."""
    return "\n".join(_BLANK.sub(" ", line).strip() for line in clean(text).split("\n")).strip()

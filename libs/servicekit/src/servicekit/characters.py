"""Checks of the characters of names and ids."""

import unicodedata

_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})


def has_controls(text: str) -> bool:
    """Return whether a text has control characters, surrogates, or separators of lines or paragraphs."""
    return any(unicodedata.category(character) in _CONTROLS for character in text)


def has_surrogates(text: str) -> bool:
    """Return whether a text has lone surrogates, so that UTF-8 cannot encode it."""
    return any("\ud800" <= character <= "\udfff" for character in text)

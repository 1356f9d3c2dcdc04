"""Keep the words around a redaction that begins or ends within a word.

``tern4111111111111111`` contains no card number, because the number does not begin a word. If ``[REDACTED]``
replaces ``tern``, the number begins a word. A separator prevents this.
"""

_SEPARATOR = "_"


def separator(kept: str, redacted: str, edge: str) -> str:
    """Return the separator between a replacement and the rest of a word, so that the rest is not a new word.

    Args:
        kept: The remaining character next to the cut, or empty at an end of the text.
        redacted: The redacted character on the other side of the cut.
        edge: The replacement's character next to the cut, or empty for an empty replacement. Next to a letter or
            a digit, no separator is needed.

    >>> separator("4", "n", "]"), separator(" ", "n", "["), separator("4", "n", "")
    ('_', '', '')
    """
    return _SEPARATOR if edge and _is_word(kept) and _is_word(redacted) and not _is_word(edge) else ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

"""Keep the words around a redaction that begins or ends within a word.

``tern4111111111111111`` contains no card number, because the number does not begin a word. If ``[REDACTED]``
replaces ``tern``, the number begins a word. A separator prevents this.
"""

_JOINT = "_"


def joint(kept: str, taken: str, edge: str) -> str:
    """Return the separator between a replacement and the rest of a word, so that the rest does not become a word.

    Args:
        kept: The remaining character beside the cut, or empty at an end of the text.
        taken: The redacted character on the other side of the cut.
        edge: The replacement's character beside the cut, or empty for an empty replacement. Beside a letter or
            a digit, no separator is needed.

    >>> joint("4", "n", "]"), joint(" ", "n", "["), joint("4", "n", "")
    ('_', '', '')
    """
    return _JOINT if edge and _is_word(kept) and _is_word(taken) and not _is_word(edge) else ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

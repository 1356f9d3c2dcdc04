"""Redactions that begin or end within a word.

``tern4111111111111111`` holds no card number: the number does not begin a word. After ``[REDACTED]`` it would.
"""

_JOINT = "_"


def joint(kept: str, taken: str, edge: str) -> str:
    """Return the separator between the rest of a word and a replacement, so that the rest does not become a word.

    Args:
        kept: The character beside the cut that is kept; empty at an end of the text.
        taken: The character on the other side, which is redacted.
        edge: The replacement's character beside the cut. No separator is needed if the replacement is empty, or has
            a letter or a digit there.

    >>> joint("4", "n", "]"), joint(" ", "n", "["), joint("4", "n", "")
    ('_', '', '')
    """
    return _JOINT if edge and _is_word(kept) and _is_word(taken) and not _is_word(edge) else ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

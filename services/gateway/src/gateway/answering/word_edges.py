"""Redactions that begin or end within a word.

``tern4111111111111111`` holds no card number: the number does not begin a word. Behind ``[REDACTED]`` it would.
"""

_JOINT = "_"


def joint(kept: str, taken: str, edge: str) -> str:
    """Return what separates the rest of a word from a replacement, so that the rest is no word of its own.

    Args:
        kept: The character that stays beside the cut; empty at an end of the text.
        taken: The character on the other side, which is replaced.
        edge: The replacement's character beside the cut. A replacement that is empty, or has a letter or a digit
            there, makes no word of the rest.

    >>> joint("4", "n", "]"), joint(" ", "n", "["), joint("4", "n", "")
    ('_', '', '')
    """
    return _JOINT if edge and _is_word(kept) and _is_word(taken) and not _is_word(edge) else ""


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

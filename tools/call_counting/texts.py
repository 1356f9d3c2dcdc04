"""Texts of passages and of documents."""

_WORDS = ["ferry", "bridge", "harbour", "bearing", "valve", "pump", "rope", "lamp", "mast", "sail", "oar", "deck"]


def text(seed: int) -> str:
    """Return 150 words, which depend only on the seed."""
    return " ".join(_WORDS[(seed * 7 + at * (seed % 5 + 1)) % len(_WORDS)] for at in range(150))

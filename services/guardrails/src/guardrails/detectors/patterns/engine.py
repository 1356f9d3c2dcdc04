"""The regular expression engine: RE2, whose time is linear in the text whatever the pattern.

Texts are UTF-8 bytes, positions byte offsets. The wrapper's own binding is called directly: its ``re``-like classes
double the cost of a search, which is paid for every piece of every stream, and keep a cache that nobody bounds.
"""

from re2 import Options, _re2  # type: ignore[import-untyped]  # shipped without types

_ANYWHERE = _re2.RE2.Anchor.UNANCHORED
_HERE = _re2.RE2.Anchor.ANCHOR_START
_EXACTLY = _re2.RE2.Anchor.ANCHOR_BOTH


class Unsupported(ValueError):
    """A pattern that the engine refuses; the message says why."""


class Regex:
    """A compiled pattern. Safe to use from several threads; searches do not hold the interpreter's lock.

    Args:
        pattern: In RE2's syntax.
        memory: Bytes that the program and its automata may take.
        group: Whether `group_at` is needed; without it searches are faster.

    Attributes:
        size: Instructions of the program; the worst case of a search is the product of it and the text.

    Raises:
        Unsupported: The pattern is malformed, needs more than regular languages have, or takes too much memory.
    """

    def __init__(self, pattern: str, *, memory: int, group: bool = False) -> None:
        options = Options()
        options.never_capture = not group
        options.log_errors = False
        options.max_mem = memory
        regex = _re2.RE2(pattern.encode(), options)
        if not regex.ok():
            raise Unsupported(regex.error().decode(errors="replace"))
        self._match = regex.Match
        self.size: int = regex.ProgramSize()

    def search(self, text: bytes, start: int) -> tuple[int, int]:
        r"""The leftmost match that begins at ``start`` or later; ``(-1, -1)`` without one.

        What lies before ``start`` is seen by ``\b`` and ``^``.
        """
        span: tuple[int, int] = self._match(_ANYWHERE, text, start, len(text))[0]
        return span

    def group_at(self, text: bytes, start: int) -> tuple[int, int]:
        """The first group of the match that begins exactly at ``start``."""
        span: tuple[int, int] = self._match(_HERE, text, start, len(text))[1]
        return span

    def matches_nothing(self) -> bool:
        """Whether the empty text matches somewhere in some text."""
        # An empty match depends on the kinds of its two neighbours alone: none, newline, word character, other.
        neighbours = (b"", b"\n", b"a", b" ")
        return any(
            self._match(_EXACTLY, before + after, len(before), len(before))[0] != (-1, -1)
            for before in neighbours
            for after in neighbours
        )

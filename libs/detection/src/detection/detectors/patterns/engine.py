"""The regular expression engine RE2. For every pattern, the time of a search is linear in the length of the text.

Texts are UTF-8 bytes, and positions are byte offsets. This module calls the binding of the package ``re2``
directly. The ``re``-like classes of the package have an unbounded cache and double the time of a search, and every
piece of every stream causes a search.
"""

from re2 import Options, _re2  # type: ignore[import-untyped]  # shipped without types

_ANYWHERE = _re2.RE2.Anchor.UNANCHORED
_AT_START = _re2.RE2.Anchor.ANCHOR_START
_FULL_MATCH = _re2.RE2.Anchor.ANCHOR_BOTH


class Unsupported(ValueError):
    """The engine refuses a pattern; the message gives the reason."""


class Regex:
    """A compiled pattern. It is safe to use from several threads; searches release the GIL.

    Args:
        pattern: The pattern in RE2's syntax.
        memory: The maximum memory of the compiled program and its automata, in bytes.
        group: Whether `group_at` is needed. Searches without groups are faster.

    Attributes:
        size: The number of instructions. The time of a search is at most proportional to size times text length.

    Raises:
        Unsupported: The pattern is malformed, is not a regular language, or takes too much memory.
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
        r"""Return the leftmost match that begins at ``start`` or later; ``(-1, -1)`` without a match.

        ``\b`` and ``^`` see the text before ``start``.
        """
        span: tuple[int, int] = self._match(_ANYWHERE, text, start, len(text))[0]
        return span

    def group_at(self, text: bytes, start: int) -> tuple[int, int]:
        """Return the first group of the match that begins exactly at ``start``."""
        span: tuple[int, int] = self._match(_AT_START, text, start, len(text))[1]
        return span

    def matches_empty(self) -> bool:
        """Return whether the pattern can match the empty string in some text."""
        # An empty match depends only on the characters beside it: nothing, a newline, a word character, or another
        # character.
        neighbours = (b"", b"\n", b"a", b" ")
        return any(
            self._match(_FULL_MATCH, before + after, len(before), len(before))[0] != (-1, -1)
            for before in neighbours
            for after in neighbours
        )

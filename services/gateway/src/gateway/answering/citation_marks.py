"""Find citation marks, ``[name]``, in a streamed answer. The pieces of the stream may divide a mark."""

from collections.abc import Iterable, Sequence

from gateway.domain import Passage


def names_of(passages: Iterable[Passage]) -> frozenset[str]:
    """Return the names under which an answer may cite passages: the names of their pages and of their files."""
    return frozenset(name for passage in passages for name in (passage.sourcepage, passage.sourcefile) if name)


class MarkScanner:
    """Finds the citation marks of some names in a streamed text. Only an exact name is a mark.

    The result does not depend on the sizes of the pieces. The scanner holds back a possible beginning of a mark
    until the following text completes or excludes the mark. It holds back at most the length of the longest mark.

    Args:
        names: The names that may be cited.

    >>> scanner = MarkScanner(["a.pdf#page=2"])
    >>> scanner.feed("See [a.p"), scanner.holds
    ([('See ', False)], True)
    >>> scanner.feed("df#page=2] and [b.pdf]."), scanner.end()
    ([('[a.pdf#page=2]', True), (' and [b.pdf].', False)], [])
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._marks = sorted({f"[{name}]" for name in names}, key=len, reverse=True)
        self._held = ""

    @property
    def holds(self) -> bool:
        """Return whether the text so far ends with a possible beginning of a mark."""
        return bool(self._held)

    def feed(self, piece: str) -> Sequence[tuple[str, bool]]:
        """Return the spans that the next piece completes, in order, each with a flag for a mark."""
        if not self._held and "[" not in piece:
            return [(piece, False)] if piece else []
        return self._split(self._held + piece, is_last=False)

    def end(self) -> Sequence[tuple[str, bool]]:
        """Return the remaining spans at the end of the text."""
        return self._split(self._held, is_last=True) if self._held else []

    def _split(self, text: str, *, is_last: bool) -> list[tuple[str, bool]]:
        self._held = ""
        out: list[tuple[str, bool]] = []
        begin, at = 0, text.find("[")
        while at >= 0:
            rest = len(text) - at
            if not is_last and any(rest < len(mark) and mark.startswith(text[at:]) for mark in self._marks):
                break
            mark = next((mark for mark in self._marks if text.startswith(mark, at)), "")
            if mark:
                out += [(text[begin:at], False), (mark, True)]
                begin = at + len(mark)
            at = text.find("[", at + (len(mark) or 1))
        else:
            at = len(text)
        self._held = text[at:]
        out.append((text[begin:at], False))
        return [span for span in out if span[0]]


def spans_of(text: str, names: Iterable[str]) -> list[tuple[int, int]]:
    """Return the start and the end of each mark in a whole text."""
    scanner, at, spans = MarkScanner(names), 0, list[tuple[int, int]]()
    for span, is_mark in (*scanner.feed(text), *scanner.end()):
        if is_mark:
            spans.append((at, at + len(span)))
        at += len(span)
    return spans

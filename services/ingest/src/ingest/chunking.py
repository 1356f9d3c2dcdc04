"""Pages → chunks: whole sentences of one section of one page, as many as the embedding model reads well.

A chunk is a stretch of its section's text, unchanged. Each begins with the last sentence or two of the one before,
so that what a sentence refers to is at hand. Sections are divided evenly: two halves serve a search better than a
full chunk and a crumb.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from embedding.port import Tokenizer

from ingest.domain import Chunk
from ingest.parsing.content import Page
from ingest.sentences import sentences

_SEPARATORS = re.compile(r"[\W_]+")
_OVERLAP_SENTENCES = 2
_CHARACTERS_A_TOKEN = 10
"""Bounds what tokenizers make one token of, such as a word of 1000 letters."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large chunks are.

    Attributes:
        tokens: Most tokens of a chunk's text, as the embedding model counts them.
        overlap: Most tokens that a chunk repeats of the one before.
        indexed_tokens: Most tokens of the indexed text: what the model reads of it.
    """

    tokens: int
    overlap: int
    indexed_tokens: int

    @property
    def characters(self) -> int:
        """Most characters of a chunk's text."""
        return _CHARACTERS_A_TOKEN * self.tokens

    @classmethod
    def fitting(cls, model_tokens: int, tokens: int = 200, overlap: int = 30) -> "Shape":
        """The shape for a model that reads so many tokens: a fifth of them is left for names and headings."""
        tokens = max(16, min(tokens, model_tokens * 4 // 5))
        return cls(tokens, min(overlap, tokens // 3), model_tokens)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence, or a part of one that is too long for a chunk."""

    start: int
    end: int
    tokens: int


class Chunker:
    """Cuts documents into chunks. Pure; callable from any thread.

    Args:
        tokenizer: Of the embedding model.
        shape: How large chunks are.
    """

    def __init__(self, tokenizer: Tokenizer, shape: Shape) -> None:
        self._tokenizer = tokenizer
        self._shape = shape

    def chunks(self, pages: Iterable[Page], sourcefile: str) -> Iterator[Chunk]:
        """The chunks of a document, in reading order."""
        number = 0
        name = document_name(sourcefile)
        for page in pages:
            for section in page.sections:
                before = None
                for start, end in self.split(section.text):
                    text = section.text[start:end]
                    indexed = self._indexed(name, section.headings, text)
                    overlap, separator = _joint(section.text, before, start)
                    yield Chunk(number, text, indexed, page.number, section.headings, overlap, separator)
                    number += 1
                    before = end

    def chunks_of(self, text: str) -> Iterator[Chunk]:
        """The chunks of a text that came as it is: what they add one after the other is the text."""
        before = 0
        spans = self.split(text)
        for number, (start, end) in enumerate(spans):
            stop = end if number + 1 < len(spans) else len(text)
            overlap, separator = _joint(text, before, start)
            yield Chunk(number, text[start:stop], text[start:end], 0, (), overlap, separator)
            before = end

    def split(self, text: str) -> list[tuple[int, int]]:
        """Spans of a section's chunks in code points. Everything but white space lies in at least one."""
        pieces = list(itertools.chain.from_iterable(self._pieces(text, *span) for span in sentences(text)))
        if not pieces:
            return []
        total = sum(piece.tokens for piece in pieces)
        room = self._shape.tokens - self._shape.overlap
        parts = 1 if total <= self._shape.tokens else math.ceil((total - self._shape.overlap) / room)
        target = total / parts
        spans: list[tuple[int, int]] = []
        first = 0
        while first < len(pieces):
            begin = self._overlap_from(pieces, first, spans)
            last = first
            fresh = pieces[first].tokens
            while last + 1 < len(pieces) and fresh < target and self._fits(text, pieces, begin, last + 1):
                last += 1
                fresh += pieces[last].tokens
            while begin < first and not self._fits(text, pieces, begin, last):
                begin += 1
            spans.append((pieces[begin].start, pieces[last].end))
            first = last + 1
        return spans

    def _fits(self, text: str, pieces: list[_Piece], begin: int, last: int) -> bool:
        start, end = pieces[begin].start, pieces[last].end
        if end - start > self._shape.characters:
            return False
        estimate = sum(piece.tokens for piece in pieces[begin : last + 1])
        # Parts and whole may differ by what stands at their joints; far from the limit that does not matter.
        if estimate + (last - begin) * 2 <= self._shape.tokens:
            return True
        return estimate <= 2 * self._shape.tokens and self._tokenizer.count(text[start:end]) <= self._shape.tokens

    def _overlap_from(self, pieces: list[_Piece], first: int, spans: list[tuple[int, int]]) -> int:
        """The piece that the chunk whose first new piece is ``first`` begins with."""
        begin, tokens = first, 0
        while (
            spans
            and first - begin < _OVERLAP_SENTENCES
            and pieces[begin - 1].start > spans[-1][0]  # not the whole of the chunk before
            and tokens + pieces[begin - 1].tokens <= self._shape.overlap
        ):
            begin -= 1
            tokens += pieces[begin].tokens
        return begin

    def _pieces(self, text: str, start: int, end: int) -> Iterator[_Piece]:
        """A sentence, whole if a chunk can hold it."""
        while start < end:
            stop = self._cut(text, start, end)
            yield _Piece(start, stop, self._tokenizer.count(text[start:stop]))
            start = stop
            while start < end and text[start].isspace():
                start += 1

    def _cut(self, text: str, start: int, end: int) -> int:
        """How far a piece that begins at ``start`` may go: to a space if there is one late enough."""
        limit, shape = end, self._shape
        if end - start > shape.characters:
            limit = start + shape.characters
        spans = self._tokenizer.spans(text[start:limit])
        if limit == end and len(spans) <= shape.tokens:
            return end
        if len(spans) > shape.tokens:
            limit = start + max(1, spans[shape.tokens][0])
        while True:
            middle = start + (limit - start) // 2
            space = next((at for at in range(limit - 1, middle, -1) if text[at].isspace()), limit)
            stop = start + max(1, len(text[start:space].rstrip()))
            excess = self._tokenizer.count(text[start:stop]) - shape.tokens
            if excess <= 0 or stop == start + 1:
                return stop
            limit = max(start + 1, stop - excess)  # a part of a word may have more tokens than it had in the word

    def _indexed(self, name: str, headings: tuple[str, ...], text: str) -> str:
        """Name and headings in front of the text, as far as the model reads; what the text says is not repeated."""
        lines = [*(line for line in (name, *headings) if line and line not in text), text]
        while len(lines) > 1 and self._tokenizer.count("\n".join(lines)) > self._shape.indexed_tokens:
            # The outermost heading says least; the name goes last.
            lines.pop(1 if len(lines) > 2 else 0)
        return "\n".join(lines)


def _joint(text: str, before: int | None, start: int) -> tuple[int, str | None]:
    """Overlap and separator of a chunk that begins at ``start``, after one that ended at ``before``."""
    if before is None:
        return 0, None
    return max(0, before - start), text[before:start]


def document_name(sourcefile: str) -> str:
    """A file's name as words: ``reports/annual_review-2024.pdf`` is ``annual review 2024``."""
    return " ".join(_SEPARATORS.sub(" ", PurePosixPath(sourcefile.replace("\\", "/")).stem).split())

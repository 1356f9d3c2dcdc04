"""Splits pages into chunks of whole sentences, rows or definitions, within a section and the model's token limit.

A chunk is an unchanged part of its section's text. For context, it begins with the last sentences of the previous
chunk, up to the maximum overlap. Sections are divided evenly, because two halves are better for search than a full
chunk and a tiny one.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from embedding.port import Tokenizer
from text.sentences import sentence_spans

from ingest.domain import Chunk
from ingest.parsing.content import Page

_SEPARATORS = re.compile(r"[\W_]+")
_CHARACTERS_PER_TOKEN = 10
"""Maximum characters per token on average. The tokenizer may count a word of 1000 letters as one token."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The size of chunks.

    Attributes:
        tokens: Maximum number of tokens of a chunk's text, by the embedding model's tokenizer.
        overlap: Maximum number of tokens of the previous chunk that a chunk repeats.
        indexed_tokens: Maximum number of tokens of `Chunk.indexed_text`: the limit of the embedding model.
    """

    tokens: int
    overlap: int
    indexed_tokens: int

    @property
    def characters(self) -> int:
        """Maximum number of characters of a chunk's text."""
        return _CHARACTERS_PER_TOKEN * self.tokens

    @classmethod
    def for_model(cls, model_tokens: int, tokens: int = 200, overlap: int = 30) -> "ChunkLimits":
        """Return the limits for a model. A fifth of the model's token limit is reserved for names and headings.

        The limit of a chunk's tokens is at least 16. At most half of a chunk repeats the previous one.

        Args:
            model_tokens: Maximum number of tokens that the model reads.
            tokens: Requested maximum number of tokens of a chunk's text.
            overlap: Requested maximum number of tokens that a chunk repeats.
        """
        tokens = max(16, min(tokens, model_tokens * 4 // 5))
        return cls(tokens, min(overlap, tokens // 2), model_tokens)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence, a row, a definition, or a part of one that is too long for a chunk.

    Attributes:
        start: In code points of the section's text.
        end: Exclusive.
        tokens: Number of tokens of this span alone.
        continues: Whether this and the previous piece are parts of one sentence, which is too long for a chunk.
    """

    start: int
    end: int
    tokens: int
    continues: bool = False


@dataclass(frozen=True, slots=True)
class TextSection:
    """A section of a document that was submitted as text.

    Attributes:
        start: In code points of the text.
        end: Exclusive.
        headings: Headings above the section, outermost first.
        whole: See `ingest.parsing.content.Section`; relative to the start.
    """

    start: int
    end: int
    headings: tuple[str, ...] = ()
    whole: tuple[tuple[int, int], ...] = ()


class Chunker:
    """Splits documents into chunks. The methods can be called from any thread.

    Args:
        tokenizer: The tokenizer of the embedding model.
        limits: The limits of a chunk.
    """

    def __init__(self, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits

    def chunks(self, pages: Iterable[Page], sourcefile: str) -> Iterator[Chunk]:
        """Yield the chunks of a document in reading order."""
        number = 0
        name = document_name(sourcefile)
        for page in pages:
            for section in page.sections:
                previous_end = None
                for start, end in self.split(section.text, section.whole):
                    text = section.text[start:end]
                    indexed = self._indexed(name, section.headings, text)
                    overlap, separator = _overlap_and_separator(section.text, previous_end, start)
                    yield Chunk(number, text, indexed, page.number, section.headings, overlap, separator)
                    number += 1
                    previous_end = end

    def text_chunks(self, text: str, sections: Sequence[TextSection] = ()) -> Iterator[Chunk]:
        """Yield the chunks of a text that was submitted as text.

        Without the overlaps, the chunks and their separators add up to the text.

        Args:
            text: The whole text.
            sections: Its disjoint sections, in order. Together they contain all characters except white space. By
                default, the text is one section.
        """
        previous_end = 0
        spans = [
            (section.start + start, section.start + end, section.headings)
            for section in sections or (TextSection(0, len(text)),)
            for start, end in self.split(text[section.start : section.end], section.whole)
        ]
        for number, (start, end, headings) in enumerate(spans):
            stop = end if number + 1 < len(spans) else len(text)
            overlap, separator = _overlap_and_separator(text, previous_end, start)
            indexed = self._indexed("", headings, text[start:end])
            yield Chunk(number, text[start:stop], indexed, 0, headings, overlap, separator)
            previous_end = end

    def split(self, text: str, whole: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        """Return the spans of a section's chunks in code points. They cover all characters except white space.

        A section without ``whole`` spans that fits into a chunk is one chunk.

        Args:
            text: The text of the section.
            whole: See `ingest.parsing.content.Section`; impossible spans are ignored.
        """
        if not whole and (only := self._as_one_chunk(text)) is not None:
            return [only]
        pieces = list(self._pieces(text, whole))
        total = sum(piece.tokens for piece in pieces)
        new_per_chunk = self._limits.tokens - self._limits.overlap
        parts = 1 if total <= self._limits.tokens else math.ceil((total - self._limits.overlap) / new_per_chunk)
        target = total / parts
        spans: list[tuple[int, int]] = []
        first = 0
        while first < len(pieces):
            starts = self._starts(text, pieces, first, spans)
            begin, overlap = starts.pop()
            last = first
            new_tokens = pieces[first].tokens
            while last + 1 < len(pieces) and new_tokens < target:
                following = pieces[last + 1]
                tokens = overlap + new_tokens + following.tokens
                if not self._fits(text, begin, following.end, tokens, last + 1 - first):
                    break
                last += 1
                new_tokens += following.tokens
            while starts and not self._fits(text, begin, pieces[last].end, overlap + new_tokens, last - first):
                begin, overlap = starts.pop()
            spans.append((begin, pieces[last].end))
            first = last + 1
        return spans

    def _as_one_chunk(self, text: str) -> tuple[int, int] | None:
        """Return the span of the text without the white space around it, if it fits into a chunk."""
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        if not 0 < end - start <= self._limits.characters:
            return None
        return (start, end) if self._tokenizer.count(text[start:end]) <= self._limits.tokens else None

    def _fits(self, text: str, start: int, end: int, estimate: int, boundaries: int) -> bool:
        """Return whether a span fits into a chunk.

        Args:
            text: The text of the section.
            start: Start of the span.
            end: End of the span, exclusive.
            estimate: The sum of the tokens of its pieces.
            boundaries: The number of boundaries between these pieces, without those in the overlap.
        """
        if end - start > self._limits.characters:
            return False
        # The token counts of parts may not add up to the count of the whole. Far below the limit, the sum is good
        # enough.
        if estimate + (boundaries + 1) * 2 <= self._limits.tokens:
            return True
        return estimate <= 2 * self._limits.tokens and self._tokenizer.count(text[start:end]) <= self._limits.tokens

    def _starts(
        self, text: str, pieces: Sequence[_Piece], first: int, spans: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return the possible starts of a chunk, each with the number of tokens that the chunk then repeats.

        The first new piece of the chunk is ``first``. The list is in descending order. All starts are after the
        start of the previous chunk.
        """
        starts = [(pieces[first].start, 0)]
        if spans and pieces[first].continues:
            return starts + self._overlap_within(text, pieces[first - 1], pieces[first].start, spans[-1][0])
        tokens = 0
        for at in range(first - 1, -1, -1) if spans else ():
            piece = pieces[at]
            tokens += piece.tokens
            if piece.start <= spans[-1][0] or tokens > self._limits.overlap:
                break
            starts.append((piece.start, tokens))
        return starts

    def _overlap_within(self, text: str, piece: _Piece, end: int, after: int) -> list[tuple[int, int]]:
        """Return the start of the overlap in a piece that continues at ``end``, with the number of repeated tokens.

        The start is after a space if possible, otherwise between two tokens. If no start is possible, the list is
        empty.

        Args:
            text: The text of the section.
            piece: The piece before the chunk.
            end: The start of the next piece, with which the chunk's new text begins.
            after: The start of the previous chunk. The overlap begins after it.
        """
        overlap = self._limits.overlap
        spans = self._tokenizer.spans(text[piece.start : end])
        bounds = [start for (_, before), (start, _) in itertools.pairwise(spans) if before <= start]
        inside = [piece.start + at for at in bounds if at >= spans[-overlap:][0][0]] if overlap else []
        spaced = [at for at in inside if text[at - 1].isspace()]
        for at in spaced or inside:
            tokens = self._tokenizer.count(text[at:end])
            if at > after and tokens <= overlap:
                return [(at, tokens)]
        return []

    def _pieces(self, text: str, whole: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
        """Yield the section's pieces in order."""
        done = 0
        for start, end in whole:
            if done <= start < end <= len(text):
                yield from self._sentences(text, done, start)
                yield from self._whole_or_lines(text, start, end)
                done = end
        yield from self._sentences(text, done, len(text))

    def _whole_or_lines(self, text: str, start: int, end: int) -> Iterator[_Piece]:
        """Yield a span as one piece if it fits into a chunk, otherwise line by line."""
        piece = self._whole(text, start, end)
        if piece is not None:
            yield piece
            return
        for line in text[start:end].splitlines(keepends=True):
            piece = self._whole(text, start, start + len(line))
            if piece is not None:
                yield piece
            else:
                yield from self._sentences(text, start, start + len(line))
            start += len(line)

    def _whole(self, text: str, start: int, end: int) -> _Piece | None:
        """Return a span as one piece, with its indentation, or None if it is too long or blank."""
        stripped = text[start:end].rstrip()
        if not stripped or len(stripped) > self._limits.characters:
            return None
        tokens = self._tokenizer.count(stripped)
        return _Piece(start, start + len(stripped), tokens) if tokens <= self._limits.tokens else None

    def _sentences(self, text: str, start: int, end: int) -> Iterator[_Piece]:
        """Yield the sentences of a span. A sentence that fits into a chunk is one piece."""
        for first, last in sentence_spans(text[start:end]):
            yield from self._parts(text, start + first, start + last)

    def _parts(self, text: str, start: int, end: int) -> Iterator[_Piece]:
        """Yield a sentence as one piece if it fits into a chunk, else parts that leave space for the overlap."""
        limits, limit, continues = self._limits, self._limits.tokens, False
        while start < end:
            stop, tokens = self._cut(text, start, end, limit)
            if stop < end and not continues:
                limit = max(1, limits.tokens - limits.overlap)
                stop, tokens = self._cut(text, start, end, limit)
            yield _Piece(start, stop, tokens, continues)
            start, continues = stop, True
            while start < end and text[start].isspace():
                start += 1

    def _cut(self, text: str, start: int, end: int, tokens: int) -> tuple[int, int]:
        """Return the furthest end of a piece that begins at ``start``, and its number of tokens.

        The end is at a space if the second half of the piece contains a space.
        """
        limit = end
        if end - start > self._limits.characters:
            limit = start + self._limits.characters
        spans = self._tokenizer.spans(text[start:limit])
        if limit == end and len(spans) <= tokens:
            return end, len(spans)
        if len(spans) > tokens:
            limit = start + max(1, spans[tokens][0])
        while True:
            middle = start + (limit - start) // 2
            space = next((at for at in range(limit - 1, middle, -1) if text[at].isspace()), limit)
            stop = start + max(1, len(text[start:space].rstrip()))
            found = self._tokenizer.count(text[start:stop])
            if found <= tokens or stop == start + 1:
                return stop, found
            limit = max(start + 1, stop + tokens - found)  # a cut within a word can add tokens

    def _indexed(self, name: str, headings: tuple[str, ...], text: str) -> str:
        """Return the text with the name and headings before it, as many as fit into the model's limit.

        A name or heading that occurs in the text is omitted.
        """
        names = [name] if name and name not in text else []
        outer = [heading for heading in headings if heading and heading not in text]
        while (names or outer) and self._tokenizer.count(
            "\n".join((*names, *outer, text))
        ) > self._limits.indexed_tokens:
            # The outermost heading has the least information and is dropped first. The name is dropped last.
            (outer or names).pop(0)
        return "\n".join((*names, *outer, text))


def _overlap_and_separator(text: str, previous_end: int | None, start: int) -> tuple[int, str | None]:
    """Return the overlap (in code points) and the separator between the previous chunk and one from ``start``."""
    if previous_end is None:
        return 0, None
    return max(0, previous_end - start), text[previous_end:start]


def document_name(sourcefile: str) -> str:
    """Return a file's name as words: ``reports/annual_review-2024.pdf`` becomes ``annual review 2024``."""
    return " ".join(_SEPARATORS.sub(" ", PurePosixPath(sourcefile.replace("\\", "/")).stem).split())

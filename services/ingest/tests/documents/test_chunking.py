import itertools
import os
import re
from typing import Any

import pytest
from causeway_testing.embedding import WordTokenizer
from embedding.cache import default_cache_dir, model_directory
from embedding.minilm import WordPieceTokenizer
from embedding.port import Tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.documents.chunking import Chunker, ChunkLimits, document_name
from ingest.parsing.content import Page, Section
from text.sentences import sentence_spans


class CharacterTokenizer:
    """Counts every character except white space as two tokens, which is more than any real tokenizer counts."""

    def count(self, text: str) -> int:
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [(at, at + 1) for at, character in enumerate(text) if not character.isspace() for _ in range(2)]


# ruff: noqa: RUF001  # these characters are intended
TOKENIZERS: list[Tokenizer] = [WordTokenizer(), CharacterTokenizer()]
SHAPES = [ChunkLimits(16, 4, 24), ChunkLimits(20, 0, 20), ChunkLimits(40, 13, 60)]

words = st.text(alphabet=st.sampled_from("abcé漢字。.!\n "), max_size=12)
texts = st.lists(words, max_size=60).map(" ".join) | st.text(max_size=300)


@st.composite
def blocks(draw: st.DrawFn) -> Section:
    """Draw a section of prose and of spans that should not be split."""
    text, whole = "", []
    for piece, is_whole in draw(st.lists(st.tuples(st.text("ab漢. \n", max_size=60), st.booleans()), max_size=12)):
        text += "\n" if text else ""
        if is_whole:
            whole.append((len(text), len(text) + len(piece)))
        text += piece
    return Section((), text, tuple(whole))


def wordpiece() -> WordPieceTokenizer:
    return WordPieceTokenizer(model_directory(default_cache_dir(os.environ), "int8") / "tokenizer.json")


@given(text=texts, tokenizer=st.sampled_from(TOKENIZERS), limits=st.sampled_from(SHAPES))
@settings(max_examples=150)
def test_invariants_of_splitting(text: str, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
    """Every visible code point is in a chunk, the chunks are in order, no chunk exceeds the limits, and the result
    is deterministic.
    """
    chunker = Chunker(tokenizer, limits)
    spans = chunker.split(text)
    assert spans == chunker.split(text)
    covered: set[int] = set()
    for start, end in spans:
        covered.update(range(start, end))
        assert text[start:end] == text[start:end].strip()
        assert tokenizer.count(text[start:end]) <= limits.tokens or end == start + 1
        assert end - start <= limits.characters
    assert all(at in covered for at, character in enumerate(text) if not character.isspace())
    for (start, end), (next_start, next_end) in itertools.pairwise(spans):
        assert start < next_start
        assert end < next_end


@given(section=blocks(), tokenizer=st.sampled_from(TOKENIZERS), limits=st.sampled_from(SHAPES))
@settings(max_examples=150)
def test_whole_spans_are_not_split(section: Section, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
    """A span is split only if it does not fit into a chunk, and then only within lines that do not fit."""
    text = section.text
    spans = Chunker(tokenizer, limits).split(text, section.whole)
    covered = {at for start, end in spans for at in range(start, end)}
    assert all(at in covered for at, character in enumerate(text) if not character.isspace())
    assert all(tokenizer.count(text[start:end]) <= limits.tokens or end == start + 1 for start, end in spans)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in itertools.pairwise(spans))
    for start, end in section.whole:
        lines = [match.span() for match in re.compile(r"[^\n]+").finditer(text, start, end)]
        for first, last in [(start, end)] if fits(text[start:end], tokenizer, limits) else lines:
            stretch = text[first:last].rstrip()
            if stretch and fits(stretch, tokenizer, limits):
                assert any(begin <= first and first + len(stretch) <= stop for begin, stop in spans)


def fits(text: str, tokenizer: Tokenizer, limits: ChunkLimits) -> bool:
    return tokenizer.count(text.rstrip()) <= limits.tokens and len(text.rstrip()) <= limits.characters


@given(text=texts, tokenizer=st.sampled_from(TOKENIZERS), limits=st.sampled_from(SHAPES))
@settings(max_examples=100)
def test_the_overlap_has_as_many_sentences_as_fit(text: str, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
    """The overlap has as many sentences as fit into the overlap limit and into the chunk."""
    spans = Chunker(tokenizer, limits).split(text)
    found = sentence_spans(text)
    for (before, stop), (start, end) in itertools.pairwise(spans):
        assert tokenizer.count(text[start:stop]) <= limits.overlap
        for first, _ in found:
            fits_in_chunk = tokenizer.count(text[first:end]) <= limits.tokens and end - first <= limits.characters
            if before < first < start and fits_in_chunk:  # the chunk could have begun there
                assert sum(tokenizer.count(text[a:b]) for a, b in found if first <= a < stop) > limits.overlap


def test_invalid_spans_are_ignored() -> None:
    """Invalid spans are ignored, so that a document that controls its parser cannot make chunks repeat or omit
    text.
    """
    text = "One two. Three four."
    chunker = Chunker(WordTokenizer(), ChunkLimits(16, 0, 20))
    for whole in ([(9, 20), (0, 8)], [(0, 99)], [(5, 5)], [(-3, 8)], [(8, 2)]):
        assert chunker.split(text, whole) == [(0, len(text))]


@pytest.mark.parametrize("text", ["字" * 600, "word " * 600, "x1-" * 600])
def test_text_without_sentences_overlaps_too(text: str) -> None:
    """A split sentence also has an overlap. The overlap begins at a word."""
    tokenizer = wordpiece()
    spans = Chunker(tokenizer, ChunkLimits(100, 20, 120)).split(text)
    for (_, stop), (start, _) in itertools.pairwise(spans):
        assert 10 <= tokenizer.count(text[start:stop]) <= 20
        assert "word" not in text or text[start - 1] == " "


def test_rows_begin_chunks() -> None:
    """Rows with several sentences are not split. Each row has the names of its columns."""
    rows = [f"Vessel: Ship {number}; Note: Old one. Slow one." for number in range(20)]
    ends = list(itertools.accumulate(len(row) + 1 for row in rows))
    whole = tuple((end - len(row) - 1, end - 1) for row, end in zip(rows, ends, strict=True))
    page = Page(2, (Section(("Fleet",), "\n".join(rows), whole),))
    chunks = list(Chunker(WordTokenizer(), ChunkLimits(30, 0, 40)).chunks([page], "fleet.xlsx"))
    assert [line for chunk in chunks for line in chunk.text.split("\n")] == rows


@given(st.lists(st.lists(texts, max_size=3), max_size=4), st.sampled_from(SHAPES))
@settings(max_examples=50)
def test_sections_are_split_separately(pages: list[list[str]], limits: ChunkLimits) -> None:
    """The sections of a document are split separately. Each chunk has the page and the headings of its section."""
    chunker = Chunker(WordTokenizer(), limits)
    numbered_pages = [
        Page(number, tuple(Section((f"{number}.{at}",), text) for at, text in enumerate(page)))
        for number, page in enumerate(pages, 1)
    ]
    expected = [
        (page.number, section.headings, section.text[start:end])
        for page in numbered_pages
        for section in page.sections
        for start, end in chunker.split(section.text)
    ]
    chunks = list(chunker.chunks(numbered_pages, "a.pdf"))
    assert [(chunk.page, chunk.headings, chunk.text) for chunk in chunks] == expected
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))


@given(text=texts, tokenizer=st.sampled_from(TOKENIZERS), limits=st.sampled_from(SHAPES))
@settings(max_examples=100)
def test_sentences_stay_whole(text: str, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
    """A sentence is split only if it does not fit into a chunk."""
    spans = Chunker(tokenizer, limits).split(text)
    for start, end in sentence_spans(text):
        if tokenizer.count(text[start:end]) <= limits.tokens and end - start <= limits.characters:
            assert any(first <= start and end <= last for first, last in spans)


@given(text=texts, headings=st.lists(words, max_size=3), tokenizer=st.sampled_from(TOKENIZERS))
@settings(max_examples=100)
def test_the_indexed_text_has_the_whole_text(text: str, headings: list[str], tokenizer: Tokenizer) -> None:
    """The indexed text ends with the chunk's text and fits into the model's input. Chunk numbers have no gaps."""
    limits = ChunkLimits(16, 4, 24)
    page = Page(3, (Section(tuple(headings), text), Section((), text)))
    chunks = list(Chunker(tokenizer, limits).chunks([page], "some_file.pdf"))
    for number, chunk in enumerate(chunks):
        assert chunk.number == number
        assert chunk.page == 3
        assert chunk.indexed_text.endswith(chunk.text)
        assert tokenizer.count(chunk.indexed_text) <= limits.indexed_tokens or len(chunk.text) == 1


def test_chunks_overlap_by_whole_sentences() -> None:
    """A chunk begins with as many sentences of the previous chunk as fit into the overlap."""
    text = " ".join(f"This is sentence number {number}." for number in range(12))
    spans = Chunker(WordTokenizer(), ChunkLimits(20, 6, 40)).split(text)
    pieces = [text[start:end] for start, end in spans]
    for before, after in itertools.pairwise(pieces):
        last = before.split(". ")[-1]
        assert after.startswith(last)


def test_the_work_for_a_chunk_does_not_grow_with_the_section() -> None:
    """To find the overlap, the chunker reads only the pieces next to the chunk, not all earlier pieces."""

    class Pieces(list[Any]):
        read = 0

        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            self.read += len(found) if isinstance(at, slice) else 1
            return found

    text = "One. " * 1000
    chunker = Chunker(WordTokenizer(), ChunkLimits(20, 6, 40))
    pieces = Pieces(chunker._pieces(text, ()))
    starts = chunker._starts(text, pieces, 900, [(pieces[880].start, pieces[899].end)])
    assert len(starts) == 7
    assert pieces.read < 20


def test_sections_are_divided_evenly() -> None:
    """A section that is slightly longer than a chunk becomes two halves, not a full chunk and a tiny one."""
    text = " ".join(f"Sentence {number} here." for number in range(14))  # 42 words
    chunker = Chunker(WordTokenizer(), ChunkLimits(40, 0, 50))
    sizes = [WordTokenizer().count(text[start:end]) for start, end in chunker.split(text)]
    assert len(sizes) == 2
    assert abs(sizes[0] - sizes[1]) <= 3


def test_sections_and_pages_are_not_mixed() -> None:
    """Each chunk belongs to one section of one page, and has the section's headings."""
    pages = [
        Page(1, (Section(("A",), "Alpha one."), Section(("A", "B"), "Beta one."))),
        Page(2, (Section(("A", "B"), "Beta two."),)),
    ]
    chunks = list(Chunker(WordTokenizer(), ChunkLimits.for_model(256)).chunks(pages, "dir/my-file_v2.pdf"))
    assert [(chunk.page, chunk.headings, chunk.text) for chunk in chunks] == [
        (1, ("A",), "Alpha one."),
        (1, ("A", "B"), "Beta one."),
        (2, ("A", "B"), "Beta two."),
    ]
    assert chunks[2].indexed_text == "my file v2\nA\nBeta two."  # "B" is in the text


def test_headings_are_dropped_before_text() -> None:
    """If the model's input is too short, the outermost headings are dropped first, and the name last."""
    tokenizer = WordTokenizer()
    page = Page(0, (Section(("one two three", "four five"), "w " * 14),))
    expected = {20: "name\none two three\nfour five\n", 17: "name\nfour five\n", 16: "name\n", 14: ""}
    for max_tokens, prefix in expected.items():
        [chunk] = Chunker(tokenizer, ChunkLimits(16, 0, max_tokens)).chunks([page], "name.md")
        assert chunk.indexed_text == prefix + chunk.text
    [chunk] = Chunker(tokenizer, ChunkLimits(16, 0, 17)).chunks([page], "w.md")  # the text contains this name
    assert chunk.indexed_text == "four five\n" + chunk.text


@pytest.mark.parametrize(
    "text",
    [
        "字" * 3000,
        "a" * 9000,
        "渡轮每天早上八点出发，儿童免费。" * 200,
        "안녕하세요 " * 900,
        "word " * 3000,
        "🚢" * 2500,
        "https://example.org/" + "x/" * 4000,
    ],
)
def test_the_models_tokenizer_and_text_without_sentences(text: str) -> None:
    """With MiniLM's tokenizer, text without spaces or full stops is split completely and within the limits."""
    tokenizer = wordpiece()
    limits = ChunkLimits.for_model(254)
    spans = Chunker(tokenizer, limits).split(text)
    assert len(spans) > 1
    for start, end in spans:
        assert tokenizer.count(text[start:end]) <= limits.tokens
        assert end - start <= limits.characters
    covered = {at for start, end in spans for at in range(start, end)}
    assert all(at in covered for at, character in enumerate(text) if not character.isspace())


@pytest.mark.parametrize(
    ("sourcefile", "name"),
    [
        ("annual_review-2024.pdf", "annual review 2024"),
        ("dir/sub\\Bericht März.v2.md", "Bericht März v2"),
        ("with\nline.txt", "with line"),
        ("noextension", "noextension"),
    ],
)
def test_names_become_words(sourcefile: str, name: str) -> None:
    """Folders, separators and the extension of a name are not part of the indexed text."""
    assert document_name(sourcefile) == name


@given(text=texts, tokenizer=st.sampled_from(TOKENIZERS), limits=st.sampled_from(SHAPES))
@settings(max_examples=100)
def test_chunks_add_up_to_the_text(text: str, tokenizer: Tokenizer, limits: ChunkLimits) -> None:
    """Without the overlaps, the chunks and their separators add up to the text. The indexed text is stripped."""
    chunks = list(Chunker(tokenizer, limits).text_chunks(text))
    added = [(chunk.separator or "") + chunk.text[chunk.overlap :] for chunk in chunks]
    assert "".join(added) == (text if text.strip() else "")
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    for before, chunk in itertools.pairwise(chunks):
        assert before.text.endswith(chunk.text[: chunk.overlap])
    assert all(chunk.indexed_text == chunk.indexed_text.strip() != "" for chunk in chunks)

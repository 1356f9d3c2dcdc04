import asyncio
from collections.abc import Callable, Iterator

import pytest
from causeway_testing.embedding import HashingEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.documents.chunking import Chunker, ChunkLimits, TextSection
from ingest.documents.source_code import text_sections
from ingest.ocr.reading import OcrParser
from ingest.parsing.process import Limits, ProcessParser

PYTHON = "import os\r\n\r\n\r\n# Goes.\r\ndef go(a):\r\n\treturn a\r\n\r\n\r\nclass Ferry:\r\n    seats = 3\r\n"


Split = Callable[[str], list[TextSection]]


@pytest.fixture(scope="module")
def split() -> Iterator[Split]:
    """Return a function that splits Python code with a real parsing child."""
    with asyncio.Runner() as runner:
        parser = ProcessParser(Limits(memory=512 * 1024**2, seconds=20))
        reading = OcrParser(parser, None)
        yield lambda text: runner.run(text_sections(text, ".py", reading))
        runner.run(parser.aclose())


def rebuilt(text: str, sections: list[TextSection]) -> str:
    chunker = Chunker(HashingEmbedder().tokenizer, ChunkLimits(16, 5, 64))
    chunks = chunker.text_chunks(text, sections)
    return "".join((chunk.separator or "") + chunk.text[chunk.overlap :] for chunk in chunks)


def test_a_function_is_a_section(split: Split) -> None:
    """Each definition is a section with its name as heading. The line breaks remain."""
    sections = split(PYTHON)
    assert [(section.headings, PYTHON[section.start : section.end]) for section in sections] == [
        ((), "import os"),
        (("go",), "# Goes.\r\ndef go(a):\r\n\treturn a"),
        (("Ferry",), "class Ferry:\r\n    seats = 3"),
    ]
    chunks = list(Chunker(HashingEmbedder().tokenizer, ChunkLimits(30, 5, 64)).text_chunks(PYTHON, sections))
    assert [chunk.headings for chunk in chunks] == [(), ("go",), ("Ferry",)]
    assert rebuilt(PYTHON, sections) == PYTHON


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["def f():", "  return 1", "class A:", "", " ", "}", "\x0c", "\u200b", "\ufeffx = 'é'", "# a\x85b"]
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["\n", "\r\n", "\r", "\u2028"]),
)
def test_chunks_add_up_to_the_text(split: Split, lines: list[str], end: str) -> None:
    """For any lines and line ends, the chunks without their overlaps and the separators add up to the text."""
    text = "x" + end + end.join(lines)
    assert rebuilt(text, split(text)) == text


def test_other_formats_are_split_by_lines(split: Split) -> None:
    """If the parser detects another format, the text is one section of whole lines."""
    text = "%PDF-1.7\nnot one"
    assert split(text) == [TextSection(0, len(text), (), ((0, len(text)),))]
    assert rebuilt(text, split(text)) == text

import asyncio
from collections.abc import Callable, Iterator

import pytest
from causeway_testing.embedding import HashingEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.documents.chunking import Chunker, Shape, Stretch
from ingest.documents.source_code import stretches_of
from ingest.ocr.reading import ReadingParser
from ingest.parsing.process import Limits, ProcessParser

PYTHON = "import os\r\n\r\n\r\n# Goes.\r\ndef go(a):\r\n\treturn a\r\n\r\n\r\nclass Ferry:\r\n    seats = 3\r\n"


Cut = Callable[[str], list[Stretch]]


@pytest.fixture(scope="module")
def cut() -> Iterator[Cut]:
    """Return a function that cuts Python with one real parsing child."""
    with asyncio.Runner() as runner:
        parser = ProcessParser(Limits(memory=512 * 1024**2, seconds=20))
        reading = ReadingParser(parser, None)
        yield lambda text: runner.run(stretches_of(text, ".py", reading))
        runner.run(parser.aclose())


def rebuilt(text: str, stretches: list[Stretch]) -> str:
    chunker = Chunker(HashingEmbedder().tokenizer, Shape(16, 5, 64))
    chunks = chunker.chunks_of(text, stretches)
    return "".join((chunk.separator or "") + chunk.text[chunk.overlap :] for chunk in chunks)


def test_a_function_is_a_section(cut: Cut) -> None:
    """The sections are the text's definitions with their names as headings. The line breaks stay."""
    stretches = cut(PYTHON)
    assert [(each.headings, PYTHON[each.start : each.end]) for each in stretches] == [
        ((), "import os"),
        (("go",), "# Goes.\r\ndef go(a):\r\n\treturn a"),
        (("Ferry",), "class Ferry:\r\n    seats = 3"),
    ]
    chunks = list(Chunker(HashingEmbedder().tokenizer, Shape(30, 5, 64)).chunks_of(PYTHON, stretches))
    assert [chunk.headings for chunk in chunks] == [(), ("go",), ("Ferry",)]
    assert rebuilt(PYTHON, stretches) == PYTHON


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
def test_nothing_of_a_text_is_lost(cut: Cut, lines: list[str], end: str) -> None:
    """For any lines and line ends, the chunks in their order are the text."""
    text = "x" + end + end.join(lines)
    assert rebuilt(text, cut(text)) == text


def test_what_is_no_source_code_is_cut_by_lines(cut: Cut) -> None:
    """If the parser detects another format, the text is one section of whole lines."""
    text = "%PDF-1.7\nnot one"
    assert cut(text) == [Stretch(0, len(text), (), ((0, len(text)),))]
    assert rebuilt(text, cut(text)) == text

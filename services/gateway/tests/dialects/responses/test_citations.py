"""Citation marks of an answer become annotations."""

import itertools
from typing import Any

from gateway.dialects.responses.citations import Citations, Files, add_files
from gateway.domain import Passage
from hypothesis import given
from hypothesis import strategies as st

PASSAGES = [
    Passage("p1", "docs", "d1", "guide.pdf", "guide.pdf#page=2", "x", 1.0),
    Passage("p2", "docs", "d2", "b [1].md", "b.md", "y", 1.0),
]
TEXT = "See [guide.pdf#page=2][b.md], not [other] nor [a [b.md] ] nor [b.md\n"


def citable(passages: list[Passage]) -> Citations:
    files: Files = {}
    add_files(files, passages)
    return Citations(files)


def annotations(pieces: list[str]) -> list[dict[str, Any]]:
    citations = citable(PASSAGES)
    return [annotation for piece in pieces for annotation in citations.feed(piece)]


def test_marks_name_files() -> None:
    """An annotation has the file's name, its stable id and the mark's position. Other brackets are text."""
    first, second, third = annotations([TEXT])
    assert first["filename"] == "guide.pdf"
    assert first["file_id"].startswith("file-")
    assert [TEXT[annotation["index"] :][:6] for annotation in (first, second, third)] == [
        "[guide",
        "[b.md]",
        "[b.md]",
    ]
    assert second["file_id"] == third["file_id"] != first["file_id"]


def test_a_mark_names_every_file_of_this_name() -> None:
    """Files with one name in two indexes have an annotation each. Two passages of a file have one annotation."""
    page = Passage("p3", "docs", "d2", "b.md", "b.md", "z", 1.0)
    other = Passage("p4", "help", "d2", "b.md", "b.md", "z", 1.0)
    first, second = citable([*PASSAGES, page, other]).feed("See [b.md].")
    assert first["file_id"] != second["file_id"]
    assert (first["filename"], second["filename"]) == ("b.md", "b.md")
    assert (first["index"], second["index"]) == (4, 4)


@given(st.lists(st.integers(0, len(TEXT)), max_size=6).map(sorted))
def test_any_split_gives_the_same_annotations(cuts: list[int]) -> None:
    """Any split of the text gives the annotations of the complete text."""
    ends = [0, *cuts, len(TEXT)]
    assert annotations([TEXT[a:b] for a, b in itertools.pairwise(ends)]) == annotations([TEXT])


def test_an_open_bracket_is_dropped() -> None:
    """The text after an open bracket is stored up to 400 characters, and a later mark is found."""
    citations = citable(PASSAGES)
    for _ in range(50):
        assert citations.feed("[" + "x" * 100) == []
    assert len(citations._incomplete) <= 400
    assert len(citations.feed(" [b.md]")) == 1

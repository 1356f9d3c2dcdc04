import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def questions(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "examples" / "questions.jsonl").read_text().splitlines()]


def test_the_pdfs_equal_their_rendered_sources(root: Path) -> None:
    """On every machine, the sources of the corpus render to exactly the bytes of its PDFs."""
    result = subprocess.run(
        [sys.executable, "examples/build_pdfs.py", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_question_names_a_page_that_exists(root: Path, questions: list[dict[str, Any]]) -> None:
    """The page of each question exists in the corpus, and its name has the form of a citation."""
    examples = root / "examples"
    pages = {path.name for path in (examples / "corpus").glob("*.md")}
    for source in (examples / "corpus_src").glob("*.md"):
        count = source.read_text().count("<!-- page break -->") + 1
        pages |= {f"{source.stem}.pdf#page={number}" for number in range(1, count + 1)}
    assert [each for each in questions if each["sourcepage"] not in pages] == []
    assert [each for each in questions if each["sourcepage"].split("#")[0] != each["sourcefile"]] == []


def test_questions_are_complete_and_unique(questions: list[dict[str, Any]]) -> None:
    """Each question has exactly an answer and a source, and appears once."""
    assert all(list(each) == ["question", "answer", "sourcefile", "sourcepage"] for each in questions)
    assert all(text for each in questions for text in each.values())
    assert len({each["question"] for each in questions}) == len(questions)


def test_every_document_has_a_question(root: Path, questions: list[dict[str, Any]]) -> None:
    """Each document of the corpus is the source of at least one question."""
    corpus = {path.name for path in (root / "examples" / "corpus").iterdir()}
    assert {each["sourcefile"] for each in questions} == corpus

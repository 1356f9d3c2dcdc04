"""Evaluation sets: documents with questions and known pages, or a text collection with judgements."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its relevant pages or documents.

    Attributes:
        text: The text of the question.
        relevant: The pages (in the form of citations) or documents that answer the question, with a grade of 1 or
            more.
    """

    text: str
    relevant: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Documents and questions.

    Attributes:
        name: The name in the report.
        questions: The questions.
        files: Documents to upload.
        texts: Documents as texts instead of files: ``{doc_id, text, metadata}``.
    """

    name: str
    questions: Sequence[Question]
    files: Sequence[Path] = ()
    texts: Sequence[Mapping[str, Any]] = field(default_factory=list)

    @property
    def has_pages(self) -> bool:
        """Return whether the questions name pages instead of documents."""
        return bool(self.files)


def documents(folder: Path, questions: Path, limit: int | None = None) -> EvaluationSet:
    """Return the set of a folder of documents and a file of questions.

    The file has one JSON object per line, with ``question`` and ``sourcepage``, for example ``guide.pdf#page=3``.
    ``sourcepages`` is a list of several pages that answer the question.
    """
    rows = [json.loads(line) for line in questions.read_text().splitlines() if line.strip()]
    questions_of_set = [
        Question(row["question"], dict.fromkeys(row.get("sourcepages") or [row["sourcepage"]], 1)) for row in rows
    ]
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return EvaluationSet(folder.resolve().name, _spread(questions_of_set, limit), files)


def collection(folder: Path, limit: int | None = None) -> EvaluationSet:
    """Return the set of a text collection in BEIR's format.

    The folder has ``corpus.jsonl`` (``_id, title, text``), ``queries.jsonl`` (``_id, text``) and ``qrels/test.tsv``
    or ``qrels.tsv`` (query, document, grade; with a header line).
    """
    judged = next(path for path in (folder / "qrels" / "test.tsv", folder / "qrels.tsv") if path.exists())
    grades: dict[str, dict[str, int]] = {}
    for line in judged.read_text().splitlines():
        query, document, grade = (*line.split("\t"), "")[:3]
        if grade.lstrip("-").isdigit() and int(grade) > 0:
            grades.setdefault(query, {})[document] = int(grade)
    queries = {row["_id"]: row["text"] for row in _lines(folder / "queries.jsonl")}
    questions_of_set = [
        Question(queries[query], relevant) for query, relevant in grades.items() if query in queries
    ]
    texts = [
        {"doc_id": row["_id"], "text": text, "metadata": {}}
        for row in _lines(folder / "corpus.jsonl")
        if (text := f"{row.get('title', '')}\n\n{row['text']}".strip())
    ]
    return EvaluationSet(folder.resolve().name, _spread(questions_of_set, limit), texts=texts)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _spread(questions: list[Question], limit: int | None) -> list[Question]:
    """Return a number of questions, evenly selected from the list."""
    if limit is None or limit >= len(questions):
        return questions
    return [questions[number * len(questions) // limit] for number in range(limit)]

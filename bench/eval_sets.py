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
        relevant: The pages (as answers cite them) or documents that answer it, each with its grade, 1 or more.
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
    """A folder of documents, and a file of questions: one JSON object a line, with ``question`` and ``sourcepage``,
    or ``sourcepages`` where several pages answer it, each like ``guide.pdf#page=3``.
    """
    rows = [json.loads(line) for line in questions.read_text().splitlines() if line.strip()]
    asked = [
        Question(row["question"], dict.fromkeys(row.get("sourcepages") or [row["sourcepage"]], 1)) for row in rows
    ]
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return EvaluationSet(folder.resolve().name, _spread(asked, limit), files)


def collection(folder: Path, limit: int | None = None) -> EvaluationSet:
    """A text collection as BEIR has them: ``corpus.jsonl`` (``_id, title, text``), ``queries.jsonl`` (``_id,
    text``) and ``qrels/test.tsv`` (query, document, grade; with a head line), or ``qrels.tsv``.
    """
    judged = next(path for path in (folder / "qrels" / "test.tsv", folder / "qrels.tsv") if path.exists())
    grades: dict[str, dict[str, int]] = {}
    for line in judged.read_text().splitlines():
        query, document, grade = (*line.split("\t"), "")[:3]
        if grade.lstrip("-").isdigit() and int(grade) > 0:
            grades.setdefault(query, {})[document] = int(grade)
    queries = {row["_id"]: row["text"] for row in _lines(folder / "queries.jsonl")}
    asked = [Question(queries[query], relevant) for query, relevant in grades.items() if query in queries]
    texts = [
        {"doc_id": row["_id"], "text": text, "metadata": {}}
        for row in _lines(folder / "corpus.jsonl")
        if (text := f"{row.get('title', '')}\n\n{row['text']}".strip())
    ]
    return EvaluationSet(folder.resolve().name, _spread(asked, limit), texts=texts)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _spread(questions: list[Question], limit: int | None) -> list[Question]:
    """Return a number of questions from the whole list."""
    if limit is None or limit >= len(questions):
        return questions
    return [questions[number * len(questions) // limit] for number in range(limit)]

"""Evaluation of the extractive model: answers, refusals and quoted table rows.

There are two sets. The development set has the sample corpus with its questions, and 50 questions about other
subjects. The model was tuned with this set. The final set has other documents, 100 questions that they answer, 22
of them with a row of a table, and 50 questions about other subjects. It is only scored. The evaluation sends each
question through the public HTTP API with 1, 3, 5, 10 and 50 passages. ``make eval`` writes the figures into a
section of bench/results/eval.md.
"""

import argparse
import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from eval_page import write_section
from eval_platform import Platform, connected, own_stack
from eval_sets import EXAMPLES, EvaluationSet
from generator.extractive.answer import NO_SOURCES, NOT_FOUND
from generator.extractive.terms import terms, words

SETS = Path(__file__).parent / "answers"
COUNTS = (1, 3, 5, 10, 50)
USUAL_COUNT = 5
HEADING = "## What is answered, and what is refused"
_CONCURRENCY = 2


@dataclass(frozen=True, slots=True)
class EvaluatedQuestion:
    """A question with its expected answer.

    Attributes:
        text: The text of the question.
        expected: The expected content of the answer, or empty if the documents do not answer the question.
        other_rows: The content of other rows of the same table.
    """

    text: str
    expected: str = ""
    other_rows: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """Documents with answerable questions and foreign questions, which the documents do not answer.

    Attributes:
        literal: Whether a correct answer contains the expected text literally; see `has_expected_content`.
    """

    name: str
    files: Sequence[Path]
    answerable: Sequence[EvaluatedQuestion]
    foreign: Sequence[EvaluatedQuestion]
    literal: bool


@dataclass(slots=True)
class Figures:
    """The results of a set.

    Attributes:
        foreign_refused: The number of refusals of foreign questions by the number of passages.
        answerable_refused: The number of refusals of answerable questions by the number of passages.
        right: The number of answers with the expected content, with the usual number of passages.
        rows_right: The number of correct answers from a table row that contain no other row.
    """

    foreign_refused: dict[int, int] = field(default_factory=dict)
    answerable_refused: dict[int, int] = field(default_factory=dict)
    right: int = 0
    rows_right: int = 0


def sets() -> list[AnswerSet]:
    """Return the development set and the final set."""
    rows = _lines(EXAMPLES / "questions.jsonl")
    development = [EvaluatedQuestion(row["question"], row["answer"]) for row in rows]
    rows = _lines(SETS / "final" / "questions.jsonl")
    final = [EvaluatedQuestion(row["question"], row["expected"], row.get("other_rows", ())) for row in rows]
    return [
        AnswerSet("development", _files(EXAMPLES / "corpus"), development, _foreign("development"), literal=False),
        AnswerSet("final", _files(SETS / "final" / "documents"), final, _foreign("final"), literal=True),
    ]


def _foreign(name: str) -> list[EvaluatedQuestion]:
    return [EvaluatedQuestion(line) for line in (SETS / name / "foreign.txt").read_text().splitlines()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


async def evaluate(platform: Platform, answer_set: AnswerSet) -> Figures:
    """Return the figures of a set whose documents are ingested."""
    semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def answers(questions: Sequence[EvaluatedQuestion], count: int) -> list[str]:
        async def ask(question: EvaluatedQuestion) -> str:
            async with semaphore:
                return await platform.answer(question.text, count)

        return await asyncio.gather(*map(ask, questions))

    figures = Figures()
    for count in COUNTS:
        figures.foreign_refused[count] = sum(map(is_refusal, await answers(answer_set.foreign, count)))
        answer_texts = await answers(answer_set.answerable, count)
        figures.answerable_refused[count] = sum(map(is_refusal, answer_texts))
        if count == USUAL_COUNT:
            right = [
                has_expected_content(answer, each, answer_set)
                for answer, each in zip(answer_texts, answer_set.answerable, strict=True)
            ]
            figures.right = sum(right)
            figures.rows_right = sum(
                good and not any(other in answer for other in each.other_rows)
                for good, answer, each in zip(right, answer_texts, answer_set.answerable, strict=True)
                if each.other_rows
            )
    return figures


def is_refusal(answer: str) -> bool:
    """Return whether the answer is a refusal of the model."""
    return answer.strip() in (NOT_FOUND, NO_SOURCES)


def has_expected_content(answer: str, question: EvaluatedQuestion, answer_set: AnswerSet) -> bool:
    """Return whether an answer has the expected content.

    In the final set, the answer must contain the expected text. In the development set, the expected text is a
    sentence: the answer must contain its numbers and names, or half of its terms if it has neither.
    """
    if answer_set.literal:
        return question.expected.casefold() in answer.casefold()
    given_words, expected_words = set(words(answer)), words(question.expected)
    beginnings = set(re.findall(r"(?:^|[.:;] )([A-Z][a-z]+)", question.expected))
    names = {words(name)[0] for name in set(re.findall(r"[A-Z][a-z]+", question.expected)) - beginnings}
    facts = {word for word in expected_words if word[0].isdigit()} | names
    if facts:
        return facts <= given_words
    new_terms = set(terms(question.expected)) - set(terms(question.text))
    return not new_terms or len(new_terms & given_words) >= len(new_terms) / 2


def table(answer_set: AnswerSet, figures: Figures) -> str:
    """Return the figures of a set as a Markdown table, followed by a line of text."""
    head = f"| {answer_set.name}, passages |" + "".join(f" {count} |" for count in COUNTS)
    rule = "|---|" + "---:|" * len(COUNTS)
    foreign = "".join(f" {figures.foreign_refused[count]} |" for count in COUNTS)
    refused = "".join(f" {figures.answerable_refused[count]} |" for count in COUNTS)
    rows = sum(bool(each.other_rows) for each in answer_set.answerable)
    below = f"Correct answers with {USUAL_COUNT} passages: {figures.right} of {len(answer_set.answerable)}."
    if rows:
        below += f" Correct answers without another row, of {rows} questions about a row: {figures.rows_right}."
    return (
        f"{head}\n{rule}\n| {len(answer_set.foreign)} foreign questions, refused |{foreign}\n"
        f"| {len(answer_set.answerable)} answerable questions, refused |{refused}\n\n{below}"
    )


def write(page: Path, tables: Sequence[str]) -> None:
    """Replace the section in the page; other sections are unchanged."""
    now = datetime.now(UTC).date().isoformat()
    before = (SETS / "before.md").read_text().strip()
    section = (
        f"{now}, `make eval`, the extractive model with the best passages of a hybrid search. The"
        " model was tuned with the\ndevelopment set; the final set is only scored.\n\n"
        + "\n\n".join(tables)
        + f"\n\n{before}"
    )
    write_section(page, HEADING, section)


async def run(url: str, results: Path | None) -> int:
    """Run the evaluation and print the figures; return 1 if a set misses its goals."""
    tables, messages = [], []
    for answer_set in sets():
        async with connected(url, answer_set.name) as platform:
            await platform.ingest(EvaluationSet(answer_set.name, (), answer_set.files))
            figures = await evaluate(platform, answer_set)
        tables.append(table(answer_set, figures))
        print(tables[-1], end="\n\n")
        messages += shortfalls(answer_set, figures)
    if results is not None:
        write(results / "eval.md", tables)
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


def shortfalls(answer_set: AnswerSet, figures: Figures) -> list[str]:
    """Return a message for each missed goal.

    With 5 passages, at most one foreign question may be answered, and at most one answerable question refused.
    More passages must not increase the number of refused answerable questions.
    """
    messages = []
    answered = len(answer_set.foreign) - figures.foreign_refused[USUAL_COUNT]
    if answered > 1:
        messages.append(f"{answer_set.name}: {answered} foreign questions are answered")
    if figures.answerable_refused[USUAL_COUNT] > 1:
        messages.append(
            f"{answer_set.name}: {figures.answerable_refused[USUAL_COUNT]} answerable questions are refused"
        )
    if any(figures.answerable_refused[more] > figures.answerable_refused[less] for less, more in _increases()):
        messages.append(f"{answer_set.name}: more passages turn an answer into a refusal")
    return messages


def _increases() -> Iterator[tuple[int, int]]:
    return itertools.pairwise(COUNTS)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--url", help="URL of a running platform (default: a separate stack)")
    parser.add_argument("--results", type=Path, help="directory of eval.md")
    arguments = parser.parse_args()
    with nullcontext(arguments.url) if arguments.url else own_stack() as url:
        return asyncio.run(run(url, arguments.results))


if __name__ == "__main__":
    sys.exit(main())

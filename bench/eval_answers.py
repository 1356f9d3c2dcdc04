"""Evaluation of the extractive model: answers, refusals and quoted table rows.

Two sets. The development set is the sample corpus with its questions, and 50 questions about other things: the
model was tuned on them. The final set is only scored: other documents, 100 questions that they answer, 22 of them
by a row of a table, and 50 questions about other things. Every question is asked through the public HTTP API with
1, 3, 5, 10 and 50 passages. ``make eval`` writes the figures into a section of bench/results/eval.md.
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
USUAL = 5
HEADING = "## What is answered, and what is refused"
_TOGETHER = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """A question.

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
    """Documents with questions that they answer and questions that they do not."""

    name: str
    files: Sequence[Path]
    answerable: Sequence[Asked]
    foreign: Sequence[Asked]
    literal: bool


@dataclass(slots=True)
class Figures:
    """The results of a set.

    Attributes:
        foreign_refused: The refusals of foreign questions by the number of passages.
        answerable_refused: The refusals of answerable questions by the number of passages.
        right: The answers with the expected content, with the usual number of passages.
        rows_right: Of the questions that a row answers: those answered right, without a row that does not answer.
    """

    foreign_refused: dict[int, int] = field(default_factory=dict)
    answerable_refused: dict[int, int] = field(default_factory=dict)
    right: int = 0
    rows_right: int = 0


def sets() -> list[AnswerSet]:
    """Return the development set and the final set."""
    rows = _lines(EXAMPLES / "questions.jsonl")
    development = [Asked(row["question"], row["answer"]) for row in rows]
    rows = _lines(SETS / "final" / "questions.jsonl")
    final = [Asked(row["question"], row["expected"], row.get("other_rows", ())) for row in rows]
    return [
        AnswerSet("development", _files(EXAMPLES / "corpus"), development, _foreign("development"), literal=False),
        AnswerSet("final", _files(SETS / "final" / "documents"), final, _foreign("final"), literal=True),
    ]


def _foreign(name: str) -> list[Asked]:
    return [Asked(line) for line in (SETS / name / "foreign.txt").read_text().splitlines()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


async def evaluate(platform: Platform, what: AnswerSet) -> Figures:
    """Return the figures of a set whose documents are ingested."""
    turns = asyncio.Semaphore(_TOGETHER)

    async def answers(asked: Sequence[Asked], count: int) -> list[str]:
        async def one(question: Asked) -> str:
            async with turns:
                return await platform.answer(question.text, count)

        return await asyncio.gather(*map(one, asked))

    figures = Figures()
    for count in COUNTS:
        figures.foreign_refused[count] = sum(map(is_refusal, await answers(what.foreign, count)))
        given = await answers(what.answerable, count)
        figures.answerable_refused[count] = sum(map(is_refusal, given))
        if count == USUAL:
            right = [holds(answer, each, what) for answer, each in zip(given, what.answerable, strict=True)]
            figures.right = sum(right)
            figures.rows_right = sum(
                good and not any(other in answer for other in each.other_rows)
                for good, answer, each in zip(right, given, what.answerable, strict=True)
                if each.other_rows
            )
    return figures


def is_refusal(answer: str) -> bool:
    """Return whether the model says that it does not know."""
    return answer.strip() in (NOT_FOUND, NO_SOURCES)


def holds(given: str, asked: Asked, what: AnswerSet) -> bool:
    """Return whether an answer has the expected content.

    What is expected of the final set is literal. In the other set it is a sentence: its numbers and names count,
    or, where it has none, half of its words.
    """
    if what.literal:
        return asked.expected.casefold() in given.casefold()
    said, wanted = set(words(given)), words(asked.expected)
    beginnings = set(re.findall(r"(?:^|[.:;] )([A-Z][a-z]+)", asked.expected))
    names = {words(name)[0] for name in set(re.findall(r"[A-Z][a-z]+", asked.expected)) - beginnings}
    facts = {word for word in wanted if word[0].isdigit()} | names
    if facts:
        return facts <= said
    telling = set(terms(asked.expected)) - set(terms(asked.text))
    return not telling or len(telling & said) >= len(telling) / 2


def table(what: AnswerSet, figures: Figures) -> str:
    """Return the figures of a set as a Markdown table with a line of text below."""
    head = f"| {what.name}, passages |" + "".join(f" {count} |" for count in COUNTS)
    rule = "|---|" + "---:|" * len(COUNTS)
    foreign = "".join(f" {figures.foreign_refused[count]} |" for count in COUNTS)
    refused = "".join(f" {figures.answerable_refused[count]} |" for count in COUNTS)
    rows = sum(bool(each.other_rows) for each in what.answerable)
    below = f"Right over {USUAL} passages: {figures.right} of {len(what.answerable)}."
    if rows:
        below += f" Of {rows} that a row of a table answers, {figures.rows_right} right and without other rows."
    return (
        f"{head}\n{rule}\n| {len(what.foreign)} foreign questions, refused |{foreign}\n"
        f"| {len(what.answerable)} answerable questions, refused |{refused}\n\n{below}"
    )


def write(page: Path, tables: Sequence[str]) -> None:
    """Replace the section in the page. The other sections stay."""
    now = datetime.now(UTC).date().isoformat()
    before = (SETS / "before.md").read_text().strip()
    section = (
        f"{now}, `make eval`, the extractive model over the best passages of a hybrid search. The"
        " model was tuned on the\ndevelopment set; the final set is only scored.\n\n"
        + "\n\n".join(tables)
        + f"\n\n{before}"
    )
    write_section(page, HEADING, section)


async def run(url: str, results: Path | None) -> int:
    """Evaluate and print. The exit code is 1 if a set misses its goals."""
    tables, wrong = [], []
    for what in sets():
        async with connected(url, what.name) as platform:
            await platform.ingest(EvaluationSet(what.name, (), what.files))
            figures = await evaluate(platform, what)
        tables.append(table(what, figures))
        print(tables[-1], end="\n\n")
        wrong += shortfalls(what, figures)
    if results is not None:
        write(results / "eval.md", tables)
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


def shortfalls(what: AnswerSet, figures: Figures) -> list[str]:
    """Return the missed goals: two foreign questions, or two of 100 answerable ones, with 5 passages."""
    said = []
    answered = len(what.foreign) - figures.foreign_refused[USUAL]
    if answered > 1:
        said.append(f"{what.name}: {answered} foreign questions are answered")
    if figures.answerable_refused[USUAL] > 1:
        said.append(f"{what.name}: {figures.answerable_refused[USUAL]} answerable questions are refused")
    if any(figures.answerable_refused[more] > figures.answerable_refused[less] for less, more in _steps()):
        said.append(f"{what.name}: more passages turn an answer into a refusal")
    return said


def _steps() -> Iterator[tuple[int, int]]:
    return itertools.pairwise(COUNTS)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--url", help="a platform that runs (default: a stack of its own)")
    parser.add_argument("--results", type=Path, help="directory of eval.md")
    arguments = parser.parse_args()
    with nullcontext(arguments.url) if arguments.url else own_stack() as url:
        return asyncio.run(run(url, arguments.results))


if __name__ == "__main__":
    sys.exit(main())

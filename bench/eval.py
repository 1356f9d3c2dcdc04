"""Evaluation of retrieval and citations: recall, MRR, nDCG and citations for text, vector and hybrid search.

The evaluation uses only the public HTTP API, in the same way as users. ``make eval`` evaluates the
sample corpus on a separate stack. ``python bench/eval.py --help`` shows the options for a running platform, a
folder of documents with a file of questions, or a text collection with relevance judgements. The exit code is 1 if
a figure is below its floor, or if hybrid search is worse than text or vector search by more than one question.
"""

import argparse
import asyncio
import json
import platform as machine
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import eval_metrics as metrics
import eval_sets
from eval_platform import MODES, Platform, connected, own_stack
from eval_sets import EvaluationSet

PAGE_FIGURES = ("recall@3", "recall@5", "recall@10", "mrr", "all@5", "all@10", "cites_right", "cites_given")
TEXT_FIGURES = ("ndcg@10", "recall@10", "recall@100", "mrr")
CITED_TOP = 5
_CONCURRENCY = 2  # concurrent requests
_MAX_PASSAGES = 300

Figures = dict[str, float]


async def evaluate(
    platform: Platform, evaluation_set: EvaluationSet, modes: Sequence[str] = MODES
) -> dict[str, Figures]:
    """Return the figures of each mode."""
    semaphore = asyncio.Semaphore(_CONCURRENCY)
    count = 10 if evaluation_set.has_pages else _MAX_PASSAGES

    async def rankings(mode: str) -> list[list[str]]:
        async def rank(text: str) -> list[str]:
            async with semaphore:
                return await platform.ranking(text, mode, count, pages=evaluation_set.has_pages)

        return await asyncio.gather(*(rank(question.text) for question in evaluation_set.questions))

    async def citations(mode: str) -> list[tuple[list[str], list[str]]]:
        async def cite(text: str) -> tuple[list[str], list[str]]:
            async with semaphore:
                return await platform.citations(text, mode, CITED_TOP)

        return await asyncio.gather(*(cite(question.text) for question in evaluation_set.questions))

    result = {}
    for mode in modes:
        figures = _figures(evaluation_set, await rankings(mode))
        if evaluation_set.has_pages:
            figures |= _citation_figures(evaluation_set, await citations(mode))
        result[mode] = figures
    return result


def _figures(evaluation_set: EvaluationSet, rankings: Sequence[list[str]]) -> Figures:
    pairs = [
        (ranking, question.relevant) for ranking, question in zip(rankings, evaluation_set.questions, strict=True)
    ]
    mrr = metrics.mean([metrics.reciprocal_rank(*each) for each in pairs])
    if not evaluation_set.has_pages:
        return {
            "ndcg@10": metrics.mean([metrics.ndcg(*each) for each in pairs]),
            "recall@10": metrics.mean([metrics.recall(*each, 10) for each in pairs]),
            "recall@100": metrics.mean([metrics.recall(*each, 100) for each in pairs]),
            "mrr": mrr,
        }
    return {
        **{f"recall@{k}": metrics.mean([metrics.found(*each, k) for each in pairs]) for k in (3, 5, 10)},
        "mrr": mrr,
        **{f"all@{k}": metrics.mean([metrics.recall(*each, k) for each in pairs]) for k in (5, 10)},
    }


def _citation_figures(evaluation_set: EvaluationSet, answers: Sequence[tuple[list[str], list[str]]]) -> Figures:
    right = [
        any(name in question.relevant for name in cited)
        for (cited, _), question in zip(answers, evaluation_set.questions, strict=True)
    ]
    given = [name in sources for cited, sources in answers for name in cited]
    return {"cites_right": metrics.mean(right), "cites_given": metrics.mean(given)}


def shortfalls(evaluation_set: EvaluationSet, result: dict[str, Figures], floors: dict[str, float]) -> list[str]:
    """Return a message for each figure of hybrid search that is below its floor, text search or vector search.

    The comparison with the other searches needs the results of all modes. Floors need a result of hybrid search.
    """
    hybrid = result.get("hybrid", {})
    messages = [
        f"hybrid {name} is {hybrid[name]:.3f}, below its floor of {floor:.3f}"
        for name, floor in floors.items()
        if hybrid[name] < floor
    ]
    if len(result) == len(MODES) and evaluation_set.has_pages:
        for name in ("recall@3", "recall@5", "recall@10"):
            best = max(result[mode][name] for mode in ("text", "vectors"))
            missing = round((best - hybrid[name]) * len(evaluation_set.questions))
            if missing > 1:
                messages.append(f"hybrid {name} is {missing} questions below the better of text and vectors")
    return messages


def table(evaluation_set: EvaluationSet, result: dict[str, Figures]) -> str:
    """Return the figures as Markdown, for the terminal and the page."""
    names = PAGE_FIGURES if evaluation_set.has_pages else TEXT_FIGURES
    lines = [
        f"| {evaluation_set.name}, {len(evaluation_set.questions)} questions |"
        + "".join(f" {name} |" for name in names)
    ]
    lines.append("|---|" + "---:|" * len(names))
    for mode, figures in result.items():
        lines.append(f"| {mode} |" + "".join(f" {figures[name]:.3f} |" for name in names))
    return "\n".join(lines)


def write(directory: Path, evaluation_set: EvaluationSet, result: dict[str, Figures]) -> None:
    """Write eval.json and eval.md."""
    now = datetime.now(UTC).date().isoformat()
    summary = {"date": now, "set": evaluation_set.name, "questions": len(evaluation_set.questions), "modes": result}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "eval.json").write_text(json.dumps(summary, indent=1) + "\n")
    page = f"""# Retrieval and citations

{now}, {machine.machine()}, `make eval`. `recall`: the share of the questions for which the first 3, 5 or 10
passages contain a page with the answer. `all`: the share of the pages with the answer among these passages.
`cites_right`: the share of the answers over the best {CITED_TOP} passages that cite such a page. `cites_given`: the
share of the citations that name a source of the answer.

{table(evaluation_set, result)}
"""
    (directory / "eval.md").write_text(page)


async def run(arguments: argparse.Namespace, evaluation_set: EvaluationSet, url: str) -> int:
    """Run the evaluation, print the figures, and return the exit code."""
    async with connected(url, arguments.index, rerank=arguments.rerank) as platform:
        if not arguments.ingested:
            await platform.ingest(evaluation_set)
        result = await evaluate(platform, evaluation_set, arguments.mode or MODES)
    messages = shortfalls(evaluation_set, result, dict(arguments.floor))
    if arguments.json:
        print(
            json.dumps(
                {
                    "set": evaluation_set.name,
                    "questions": len(evaluation_set.questions),
                    "modes": result,
                    "wrong": messages,
                }
            )
        )
    else:
        print(table(evaluation_set, result))
    if arguments.results is not None:
        write(arguments.results, evaluation_set, result)
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--documents", type=Path, help="folder of documents (default: the sample corpus)")
    parser.add_argument(
        "--questions", type=Path, help="questions about the documents: JSON lines with question and sourcepage(s)"
    )
    parser.add_argument(
        "--collection", type=Path, help="folder of a text collection, in place of documents: corpus, queries, qrels"
    )
    parser.add_argument("--url", help="URL of a running platform (default: a separate stack)")
    parser.add_argument("--index", default="eval", help="name of the index")
    parser.add_argument("--ingested", action="store_true", help="the index already contains the documents")
    parser.add_argument("--limit", type=int, help="number of questions, evenly selected from the file")
    parser.add_argument("--mode", action="append", choices=MODES, help="repeatable (default: all modes)")
    parser.add_argument("--rerank", action="store_true", help="let the platform's reranker order the passages")
    parser.add_argument("--floor", action="append", type=_floor, default=[], help="floor of hybrid: recall@5=0.9")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--results", type=Path, help="directory for eval.md and eval.json")
    arguments = parser.parse_args()
    if arguments.collection is not None:
        evaluation_set = eval_sets.collection(arguments.collection, arguments.limit)
    else:
        folder = arguments.documents or eval_sets.EXAMPLES / "corpus"
        questions = arguments.questions or eval_sets.EXAMPLES / "questions.jsonl"
        evaluation_set = eval_sets.documents(folder, questions, arguments.limit)
    if arguments.floor and "hybrid" not in (arguments.mode or MODES):
        parser.error("--floor needs --mode hybrid, because the floors are for hybrid search")
    known = PAGE_FIGURES if evaluation_set.has_pages else TEXT_FIGURES
    for name, _ in arguments.floor:
        if name not in known:
            parser.error(f"unknown figure {name}; use one of {', '.join(known)}")
    with nullcontext(arguments.url) if arguments.url else own_stack() as url:
        return asyncio.run(run(arguments, evaluation_set, url))


def _floor(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("a floor must have the form NAME=VALUE")
    return name, float(value)


if __name__ == "__main__":
    sys.exit(main())

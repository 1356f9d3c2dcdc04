"""Evaluation of search in ten languages: nDCG@10 of text, vector and hybrid search.

For each language there are the same ten documents and twenty questions, and an index for each embedding model: the
bundled one and the optional one. Half of the questions are the development set. The other half, the final set, is
only scored. Then the evaluation sends the questions in one language to the indexes of all other languages. ``make
eval`` writes the figures into a section of bench/results/eval.md. For comparison, languages/before.json has the
figures of a platform that treated all words as English.
"""

import argparse
import asyncio
import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from eval import evaluate
from eval_metrics import mean, ndcg
from eval_page import write_section
from eval_platform import MODES, connected, own_stack
from eval_sets import EvaluationSet, Question

SETS = Path(__file__).parent / "languages"
BEFORE = SETS / "before.json"
HEADING = "## Languages"
KINDS = {"development": "question", "final": "scored"}
FIGURE = "ndcg@10"
MIN_HYBRID = 0.9
_MAX_LOSS = 0.05
"""The loss of nDCG if the document of one of ten questions falls from rank 1 to rank 3."""

MODELS = {"all-minilm-l6-v2": "bundled", "multilingual-e5-small": "multilingual"}
"""Embedding models, and their names on the page."""

ACROSS_MODES = ("vectors", "hybrid")
MIN_ACROSS = 0.75
"""The minimum mean nDCG@10 of vector search with the multilingual model, for the questions in each language."""

Result = dict[str, dict[str, dict[str, float]]]
"""Figures by language, set and mode."""

Across = dict[str, dict[str, dict[str, float]]]
"""Figures by model, language of the questions, and mode: means over the languages of the documents."""


def language_set(path: Path, kind: str) -> EvaluationSet:
    """Return the documents of a language with the questions of one set."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    questions = [Question(row[KINDS[kind]], {row["doc_id"]: 1}) for row in rows]
    texts = [{"doc_id": row["doc_id"], "text": row["text"], "metadata": {}} for row in rows]
    return EvaluationSet(f"{path.stem}, {kind}", questions, texts=texts)


def index_name(language: str, model: str) -> str:
    """Return the index of a language for an embedding model."""
    return f"language-{language}-{MODELS[model]}"


async def score_languages(url: str, model: str) -> Result:
    """Ingest all languages into separate indexes, and score both sets."""
    result: Result = {}
    for path in sorted(SETS.glob("*.jsonl")):
        async with connected(url, index_name(path.stem, model)) as platform:
            await platform.create(model)
            await platform.ingest(language_set(path, "development"))
            result[path.stem] = {
                kind: {
                    mode: round(scores[FIGURE], 3)
                    for mode, scores in (await evaluate(platform, language_set(path, kind))).items()
                }
                for kind in KINDS
            }
    return result


async def score_across_languages(url: str, model: str) -> dict[str, dict[str, float]]:
    """Score the final questions of each language over the documents in all other languages."""
    languages = sorted(path.stem for path in SETS.glob("*.jsonl"))
    result = {}
    for question_language in languages:
        questions = language_set(SETS / f"{question_language}.jsonl", "final").questions
        scores: dict[str, list[float]] = {mode: [] for mode in ACROSS_MODES}
        for documents_language in languages:
            if documents_language == question_language:
                continue
            async with connected(url, index_name(documents_language, model)) as platform:
                for mode in ACROSS_MODES:
                    for question in questions:
                        relevant = {
                            name.replace(question_language, documents_language, 1): grade
                            for name, grade in question.relevant.items()
                        }
                        ranking = await platform.ranking(question.text, mode, 10, pages=False)
                        scores[mode].append(ndcg(ranking, relevant))
        result[question_language] = {mode: round(mean(each), 3) for mode, each in scores.items()}
    return result


def table(result: Result, before: Result, kind: str) -> str:
    """Return the figures of one set as a Markdown table. A different earlier figure is in brackets."""
    lines = [f"| {kind} | " + " | ".join(MODES) + " |", "|---|" + "---:|" * len(MODES)]
    for language, sets in result.items():
        cells = [_cell(sets[kind][mode], before.get(language, {}).get(kind, {}).get(mode)) for mode in MODES]
        lines.append(f"| {language} | " + " | ".join(cells) + " |")
    means = [_cell(_mean(result, kind, mode), _mean(before, kind, mode) if before else None) for mode in MODES]
    lines.append("| mean | " + " | ".join(means) + " |")
    return "\n".join(lines)


def _mean(result: Result, kind: str, mode: str) -> float:
    return mean([sets[kind][mode] for sets in result.values()])


def _cell(now: float, before: float | None) -> str:
    return f"{now:.3f}" if before is None or f"{before:.3f}" == f"{now:.3f}" else f"{now:.3f} ({before:.3f})"


def shortfalls(result: Result) -> list[str]:
    """Return a message for each missed goal."""
    messages = []
    for language, sets in result.items():
        for kind, modes in sets.items():
            best = max(modes["text"], modes["vectors"])
            required = max(MIN_HYBRID, best - _MAX_LOSS)
            if modes["hybrid"] < required:
                messages.append(
                    f"{language}, {kind}: hybrid search has {modes['hybrid']:.3f}, the better of text and vector "
                    f"search has {best:.3f}; at least {required:.3f} is required"
                )
    return messages


def across_table(figures: Across) -> str:
    """Return the figures between languages as a Markdown table."""
    columns = [f"{MODELS[model]}, {mode}" for model in figures for mode in ACROSS_MODES]
    lines = ["| questions in | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    languages = next(iter(figures.values()))
    for language in languages:
        cells = [f"{figures[model][language][mode]:.3f}" for model in figures for mode in ACROSS_MODES]
        lines.append(f"| {language} | " + " | ".join(cells) + " |")
    means = [
        f"{mean([each[mode] for each in figures[model].values()]):.3f}"
        for model in figures
        for mode in ACROSS_MODES
    ]
    lines.append("| mean | " + " | ".join(means) + " |")
    return "\n".join(lines)


def across_shortfalls(figures: Across) -> list[str]:
    """Return a message for each missed goal of the multilingual model across languages."""
    return [
        f"questions in {language}: the multilingual model has {modes['vectors']:.3f} over other languages"
        for language, modes in figures["multilingual-e5-small"].items()
        if modes["vectors"] < MIN_ACROSS
    ]


def section(results: dict[str, Result], before: Result, between: Across) -> str:
    """Return the section of the page."""
    now = datetime.now(UTC).date().isoformat()
    bundled, multilingual = results.values()
    return (
        f"{now}, `make eval`, nDCG@10: an index of ten documents in each language, ten questions a set. The final\n"
        "set is only scored.\n\n"
        "With the bundled embedding model; in brackets: when text search treated all words as English.\n\n"
        + "\n\n".join(table(bundled, before, kind) for kind in KINDS)
        + "\n\nWith `multilingual-e5-small`; in brackets: with the bundled model.\n\n"
        + "\n\n".join(table(multilingual, bundled, kind) for kind in KINDS)
        + "\n\nQuestions of the final set, searched in the documents of each of the nine other languages.\n\n"
        + across_table(between)
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--url", help="URL of a running platform with both models (default: a separate stack)")
    parser.add_argument("--results", type=Path, help="directory of eval.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    with nullcontext(arguments.url) if arguments.url else own_stack() as url:
        results = {model: asyncio.run(score_languages(url, model)) for model in MODELS}
        between = {model: asyncio.run(score_across_languages(url, model)) for model in MODELS}
    before: Result = json.loads(BEFORE.read_text()) if BEFORE.exists() else {}
    text = section(results, before, between)
    print(json.dumps({"within": results, "across": between}) if arguments.json else text)
    if arguments.results is not None:
        write_section(arguments.results / "eval.md", HEADING, text)
    messages = [message for result in results.values() for message in shortfalls(result)] + across_shortfalls(
        between
    )
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())

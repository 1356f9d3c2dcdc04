"""What is found in ten languages: nDCG@10 by words, by meaning and by both.

Each language has an index with the same ten documents and twenty questions. Half of the questions are the
development set; the other half, the final set, is only scored: nothing is tuned on it. ``make eval`` writes the
figures into a section of bench/results/eval.md, beside those of a platform that took all words as English ones
(languages/before.json).
"""

import argparse
import asyncio
import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from eval import evaluate
from eval_metrics import mean
from eval_page import write_section
from eval_platform import MODES, connected, own_stack
from eval_sets import EvaluationSet, Question

SETS = Path(__file__).parent / "languages"
BEFORE = SETS / "before.json"
HEADING = "## Languages"
KINDS = {"development": "question", "final": "scored"}
FIGURE = "ndcg@10"
LEAST_HYBRID = 0.9
_BELOW_PARTS = 0.05
"""Half a place of one of ten questions."""

Result = dict[str, dict[str, dict[str, float]]]
"""Figures by language, set and mode."""


def language_set(path: Path, kind: str) -> EvaluationSet:
    """The documents of a language with the questions of one set."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    questions = [Question(row[KINDS[kind]], {row["doc_id"]: 1}) for row in rows]
    texts = [{"doc_id": row["doc_id"], "text": row["text"], "metadata": {}} for row in rows]
    return EvaluationSet(f"{path.stem}, {kind}", questions, texts=texts)


async def figures(url: str) -> Result:
    """Ingest all languages, each into an index of its own, and score both sets."""
    result: Result = {}
    for path in sorted(SETS.glob("*.jsonl")):
        async with connected(url, f"language-{path.stem}") as platform:
            await platform.ingest(language_set(path, "development"))
            result[path.stem] = {
                kind: {
                    mode: round(found[FIGURE], 3)
                    for mode, found in (await evaluate(platform, language_set(path, kind))).items()
                }
                for kind in KINDS
            }
    return result


def table(result: Result, before: Result, kind: str) -> str:
    """The figures of one set as a table of Markdown; where one was another before, that one follows in brackets."""
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
    """What is not as good as it must be, in words."""
    said = []
    for language, sets in result.items():
        for kind, modes in sets.items():
            best = max(modes["text"], modes["vectors"])
            if modes["hybrid"] < max(LEAST_HYBRID, best - _BELOW_PARTS):
                said.append(
                    f"{language}, {kind}: hybrid has {modes['hybrid']:.3f}, the better of its parts {best:.3f}"
                )
    return said


def section(result: Result, before: Result) -> str:
    """The section of the page."""
    now = datetime.now(UTC).date().isoformat()
    return (
        f"{now}, `make eval`, nDCG@10 with the bundled embedding model: an index of ten documents in each\n"
        "language, ten questions a set. The final set is only scored. In brackets: before text search knew\n"
        "languages.\n\n" + "\n\n".join(table(result, before, kind) for kind in KINDS)
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--url", help="a platform that runs (default: a stack of its own)")
    parser.add_argument("--results", type=Path, help="directory of eval.md")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    with nullcontext(arguments.url) if arguments.url else own_stack() as url:
        result = asyncio.run(figures(url))
    before: Result = json.loads(BEFORE.read_text()) if BEFORE.exists() else {}
    print(json.dumps(result) if arguments.json else "\n\n".join(table(result, before, kind) for kind in KINDS))
    if arguments.results is not None:
        write_section(arguments.results / "eval.md", HEADING, section(result, before))
    wrong = shortfalls(result)
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

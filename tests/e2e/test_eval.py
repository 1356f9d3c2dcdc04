"""The quality of search and citations for a part of the questions. The required values are low."""

import json
import subprocess
import sys
from pathlib import Path

EVAL = Path(__file__).resolve().parents[2] / "bench" / "eval.py"


def test_the_quality_of_search_and_citations(base_url: str, corpus: str) -> None:
    """Hybrid search finds most of the right pages, and answers cite only sources from the prompt."""
    floors = ("recall@3=0.8", "recall@5=0.85", "recall@10=0.9", "mrr=0.75", "cites_given=1")
    command = [
        sys.executable,
        str(EVAL),
        "--url",
        base_url,
        "--index",
        corpus,
        "--ingested",
        "--limit",
        "26",
        "--json",
    ]
    run = subprocess.run(
        [*command, *(part for floor in floors for part in ("--floor", floor))],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert run.returncode == 0, run.stderr
    measured = json.loads(run.stdout)
    assert measured["questions"] == 26
    assert set(measured["modes"]) == {"text", "vectors", "hybrid"}

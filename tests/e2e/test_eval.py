"""The quality of search and citations on a subset of the questions, with low limits."""

import json
import subprocess
import sys
from pathlib import Path

EVAL = Path(__file__).resolve().parents[2] / "bench" / "eval.py"


def test_what_is_found_and_cited(base_url: str, corpus: str) -> None:
    """Hybrid search finds most of the right pages, and answers cite only given sources."""
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
    said = json.loads(run.stdout)
    assert said["questions"] == 26
    assert set(said["modes"]) == {"text", "vectors", "hybrid"}

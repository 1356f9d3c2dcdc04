"""What is found and cited, measured as users would: a subset of the questions, and floors with wide margins."""

import json
import subprocess
import sys
from pathlib import Path

EVAL = Path(__file__).resolve().parents[2] / "bench" / "eval.py"


def test_what_is_found_and_cited(base_url: str, corpus: str) -> None:
    """Hybrid search finds most right pages, hardly any worse than its parts; what is cited was given."""
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

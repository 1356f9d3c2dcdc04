"""tools/call_counts.py: a token, a turn and a document cause no more calls than the baseline allows."""

import subprocess
import sys
from pathlib import Path

import call_counts
import pytest


def test_no_count_has_grown(root: Path) -> None:
    """There are at most 20 % more Python calls than in the baseline, and no more gRPC calls or records of a job."""
    command = [sys.executable, "tools/call_counts.py"]
    # In a separate process, because the settings and caches of other tests would change the counts.
    environment = {"PYTHONHASHSEED": "0", "HOME": str(Path.home())}
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


BASELINE = {"a token": 50.0, "gRPC calls: a turn": 3.0, "records of a job: a document": 2.0}


@pytest.mark.parametrize(
    "counts",
    [BASELINE, {"a token": 60.0, "gRPC calls: a turn": 3.0}, {"a token": 1.0, "gRPC calls: a turn": 2.0}],
    ids=["equal", "20-percent-more", "fewer"],
)
def test_counts_within_the_bound_are_no_problem(counts: dict[str, float]) -> None:
    """20 % more Python calls are allowed, and any lower number."""
    assert call_counts.problems(counts, BASELINE) == []


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"a token": 60.1}, "a token: 60.1, the baseline is 50"),
        ({"gRPC calls: a turn": 4.0}, "gRPC calls: a turn: 4, the baseline is 3"),
        ({"records of a job: a document": 3.0}, "records of a job: a document: 3, the baseline is 2"),
        ({"another": 1.0}, "another: the baseline does not contain this count"),
    ],
    ids=["python", "grpc", "records", "unknown"],
)
def test_a_count_above_its_bound_is_a_problem(counts: dict[str, float], problem: str) -> None:
    """A count above its bound is a problem, and so is a count that the baseline does not have."""
    assert call_counts.problems(counts, BASELINE) == [problem]

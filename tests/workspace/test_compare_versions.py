"""bench/compare_versions.py: the comparison of the CPU time of two versions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def compare(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the benchmark. Its directory is on the module search path during the test."""
    monkeypatch.syspath_prepend(str(root / "bench"))
    before = set(sys.modules)
    import compare_versions

    yield compare_versions
    for name in set(sys.modules) - before:
        if str(root / "bench") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _round(base: float, here: float) -> dict[str, dict[str, float]]:
    return {
        "base": {"gateway": base, "nats": 1.0, "idle": 0.0},
        "here": {"gateway": here, "nats": 1.0, "idle": 0.0},
    }


def test_changes_are_computed_within_a_round(compare: ModuleType) -> None:
    """A change compares the two versions in the same round. The figures are medians. Idle processes are left
    out.
    """
    # The second round runs on a machine that is half as fast. Its change is the same as that of the first round.
    whole, gateway, nats = compare.rows("a chat", [_round(4, 3), _round(8, 6), _round(4, 4)])
    assert (whole.name, whole.base, whole.here) == ("a chat", 5, 5)
    assert whole.changes == pytest.approx((-1 / 5, -2 / 9, 0))
    assert (gateway.name, gateway.base, gateway.here) == ("of it gateway", 4, 4)
    assert gateway.changes == pytest.approx((-1 / 4, -1 / 4, 0))
    assert (nats.name, nats.changes) == ("of it nats", (0, 0, 0))


def test_the_table_has_the_median_and_the_spread(compare: ModuleType) -> None:
    """A row has the figures of both versions, and the median, the minimum and the maximum of the changes."""
    page = compare.page([compare.Row("a chat", 10.0, 9.0, (-0.2, -0.1, 0.05))])
    assert page.splitlines()[-1] == "| a chat | 10.00 | 9.00 | -10.0% | -20.0% to +5.0% |"


def test_the_order_of_the_versions_alternates(compare: ModuleType) -> None:
    """Each version runs first in every second round."""
    assert [compare.order(number)[0] for number in (1, 2, 3, 4)] == ["here", "base", "here", "base"]
    assert {compare.order(1), compare.order(2)} == {("here", "base"), ("base", "here")}


def test_every_case_measures_its_services(compare: ModuleType) -> None:
    """The CPU time of a case includes all its services."""
    assert all(set(case.services) <= set(case.processes) for case in compare.CASES.values())
    assert "nats" in compare.CASES["document"].processes

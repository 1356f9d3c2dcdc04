"""``.ci/run`` in a small repository with a Makefile whose targets print their names."""

import os
import subprocess
from pathlib import Path

import pytest

MAKEFILE = """\
demo test test-slow clients-quick test-console test-proxies test-contracts test-alerts conformance:
\t@echo "target $@ in $(CURDIR)"
\t@if [ -r /dev/stdin ]; then cat; fi
\t@env | grep ^CAUSEWAY_ || true
\t@echo "options $$PYTEST_ADDOPTS"
\t@[ "$@" != "$(FAILS)" ] || exit 3
\t@[ "$@" != "$(FAILS_ONCE)" ] || [ "$$PYTEST_ADDOPTS" = --last-failed ] || exit 3
"""
STEPS = [
    "demo",
    "test",
    "test-slow",
    "clients-quick",
    "test-console",
    "test-proxies",
    "test-contracts",
    "test-alerts",
]
CASES = "others/conformance/some_cases.json"


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """Create a repository with ``.ci/run`` and the Makefile."""
    repository = tmp_path / "checkout"
    (repository / ".ci").mkdir(parents=True)
    (repository / ".ci/run").write_text((root / ".ci/run").read_text())
    (repository / "Makefile").write_text(MAKEFILE)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Begin"]):
        subprocess.run([*git, *command], cwd=repository, check=True)
    return repository


def run(checkout: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run ``.ci/run`` of a checkout, as a user who cannot install programs. No step may read the standard input."""
    temporary, programs = checkout.parent / "tmp", checkout.parent / "bin"
    temporary.mkdir()
    programs.mkdir()
    (programs / "id").write_text("#!/bin/sh\necho 1000\n")
    (programs / "id").chmod(0o755)
    return subprocess.run(
        ["bash", ".ci/run"],
        cwd=checkout,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(temporary), **environment},
        input="input of the caller",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_passes_in_a_clone_without_variables(checkout: Path) -> None:
    """The targets run in order in a temporary clone, without CAUSEWAY_* variables and without input."""
    result = run(checkout, CAUSEWAY_MODEL="stub", CAUSEWAY_AUTH="keys")
    assert result.returncode == 0, result.stderr
    targets = [line.split() for line in result.stdout.splitlines() if line.startswith("target ")]
    assert [target for _, target, _, _ in targets] == STEPS
    assert all(Path(directory) != checkout for *_, directory in targets)
    assert not list((checkout.parent / "tmp").iterdir())
    assert "CAUSEWAY_" not in result.stdout
    assert "input of the caller" not in result.stdout
    assert result.stdout.splitlines().count("options ") == len(STEPS)
    table = [line.split(maxsplit=2)[2] for line in result.stdout.splitlines()[-len(STEPS) - 2 :]]
    assert table == ["clone", *(f"make {target}" for target in STEPS), "all, exit code 0"]


@pytest.mark.parametrize(("fails", "steps"), [("demo", 2), ("test", 3), ("test-alerts", 9)])
def test_a_step_that_fails_ends_the_run(checkout: Path, fails: str, steps: int) -> None:
    """A step that fails twice ends the run with the exit code of `make`, and the table reports the failure."""
    result = run(checkout, FAILS=fails)
    assert result.returncode == 2, result.stdout  # make's message about a failed recipe
    *_, failed, whole = result.stdout.splitlines()
    assert failed.endswith(f"make {fails}: FAILED")
    assert whole.endswith("all, exit code 2")
    assert sum(line.startswith("[") for line in result.stdout.splitlines()) == steps + 1
    assert not list((checkout.parent / "tmp").iterdir())


def test_a_failed_step_runs_a_second_time(checkout: Path) -> None:
    """If the failed tests of a step pass the second time, the run continues, and the table reports the second
    attempt.
    """
    result = run(checkout, FAILS_ONCE="test")
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines().count("options --last-failed") == 1
    table = [line.split(maxsplit=2)[2] for line in result.stdout.splitlines()[-len(STEPS) - 2 :]]
    expected = [f"make {target}" for target in STEPS]
    expected[STEPS.index("test")] += ": passed the second time"
    assert table == ["clone", *expected, "all, exit code 0"]


def test_cases_of_the_reference_are_an_additional_step(checkout: Path) -> None:
    """If the file with cases of the reference exists beside the checkout, an additional step runs, and only this
    step gets the file.
    """
    cases = checkout.parent / CASES
    cases.parent.mkdir(parents=True)
    cases.write_text("{}")
    result = run(checkout)
    assert result.returncode == 0, result.stderr
    _, _, after = result.stdout.partition("target conformance")
    assert f"CAUSEWAY_CONFORMANCE_CASES={cases}" in after
    assert result.stdout.count("CAUSEWAY_CONFORMANCE_CASES=") == 1

"""tools/kind.py, with stubs of kind and docker that record their calls."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import ROOT


class Commands:
    """Stubs of `kind` and `docker`, which can fail at a given step.

    Args:
        directory: The directory of the stubs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "calls.log"

    def make(self, name: str, failing: str = "nothing", output: str = "") -> None:
        """Create a stub that prints `output`, and fails if its arguments contain `failing`."""
        file = self._directory / name
        log_call = f'echo "{name} $*" >> {self._log}'
        file.write_text(f'#!/bin/sh\n{log_call}\necho {output}\ncase "$*" in *{failing}*) exit 3;; esac\n')
        file.chmod(0o755)

    def run(self, step: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the tool with the stubs."""
        variables = {name.upper(): str(self._directory / name) for name in ("kind", "docker")}
        command = [sys.executable, str(ROOT / "tools" / "kind.py"), step]
        return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        """Return the first two words of each call of `kind`."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [" ".join(words[1:3]) for words in lines if words[0] == "kind"]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_a_missing_program_is_named(commands: Commands) -> None:
    """If kind or a container engine is missing, the tool names it, does nothing else, and ends with exit code
    69.
    """
    commands.make("docker")
    without = commands.run("all")
    assert without.returncode == 69
    assert "kind" in without.stderr
    commands.make("kind")
    commands.make("docker", failing="info")
    silent = commands.run("up")
    assert silent.returncode == 69
    assert "container engine" in silent.stderr


def test_each_step_can_run_alone(commands: Commands) -> None:
    """`up` creates the cluster of deploy/k8s/kind, `load` loads the images of Causeway, and `down` deletes the
    cluster.
    """
    commands.make("kind")
    commands.make("docker")
    assert [commands.run(step).returncode for step in ("up", "load", "down")] == [0, 0, 0]
    assert commands.calls == ["get clusters", "create cluster", "load docker-image", "delete cluster"]


def test_a_failed_step_exports_the_logs_and_deletes_the_cluster(commands: Commands) -> None:
    """If a step fails, `all` exports the logs, deletes the cluster, and ends with the exit code of the step."""
    commands.make("kind", failing="load")
    commands.make("docker")
    assert commands.run("all").returncode == 3
    expected = ["get clusters", "create cluster", "load docker-image", "export logs", "delete cluster"]
    assert commands.calls == expected


@pytest.mark.parametrize("step", ["up", "all"])
def test_an_existing_cluster_is_not_changed(commands: Commands, step: str) -> None:
    """The tool neither uses nor deletes an existing cluster of the same name. Its message explains how to delete
    it.
    """
    commands.make("kind", output="causeway")
    commands.make("docker")
    refused = commands.run(step)
    assert refused.returncode == 73
    assert "make kind-down" in refused.stderr
    assert commands.calls == ["get clusters"]


def test_actions_are_pinned() -> None:
    """Workflows pin each external action to a commit, with the version in a comment."""
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        for line in workflow.read_text().splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line

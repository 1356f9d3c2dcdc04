"""tools/kind.py with stubs of kind and docker that record their calls."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import ROOT


class Commands:
    """Stubs of `kind`, which fails at given steps, and of `docker`.

    Args:
        directory: The directory of the stubs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted = directory / "noted"

    def make(self, name: str, failing: str = "nothing", says: str = "") -> None:
        """Create a stub that prints `says`, and fails if its arguments contain `failing`."""
        file = self._directory / name
        noting = f'echo "{name} $*" >> {self._noted}'
        file.write_text(f'#!/bin/sh\n{noting}\necho {says}\ncase "$*" in *{failing}*) exit 3;; esac\n')
        file.chmod(0o755)

    def run(self, step: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the tool with the stubs."""
        named = {name.upper(): str(self._directory / name) for name in ("kind", "docker")}
        command = [sys.executable, str(ROOT / "tools" / "kind.py"), step]
        return subprocess.run(command, env=os.environ | named, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        """Return the first two words of each call of `kind`."""
        lines = [line.split() for line in self._noted.read_text().splitlines()]
        return [" ".join(words[1:3]) for words in lines if words[0] == "kind"]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_what_is_missing_is_said(commands: Commands) -> None:
    """Without kind or an engine, the tool does nothing, names the missing one, and ends with 69."""
    commands.make("docker")
    without = commands.run("all")
    assert without.returncode == 69
    assert "kind" in without.stderr
    commands.make("kind")
    commands.make("docker", failing="info")
    silent = commands.run("up")
    assert silent.returncode == 69
    assert "container engine" in silent.stderr


def test_each_step_can_be_had_alone(commands: Commands) -> None:
    """`up` creates the cluster of deploy/k8s/kind, `load` loads our images, and `down` removes the cluster."""
    commands.make("kind")
    commands.make("docker")
    assert [commands.run(step).returncode for step in ("up", "load", "down")] == [0, 0, 0]
    assert commands.calls == ["get clusters", "create cluster", "load docker-image", "delete cluster"]


def test_a_cluster_that_fails_leaves_its_logs_and_goes(commands: Commands) -> None:
    """`all` ends with the exit code of the failed step, exports the logs, and removes the cluster."""
    commands.make("kind", failing="load")
    commands.make("docker")
    assert commands.run("all").returncode == 3
    wanted = ["get clusters", "create cluster", "load docker-image", "export logs", "delete cluster"]
    assert commands.calls == wanted


@pytest.mark.parametrize("step", ["up", "all"])
def test_a_cluster_that_is_there_is_left_alone(commands: Commands, step: str) -> None:
    """An existing cluster of the same name is neither used nor removed, and the message says how to remove it."""
    commands.make("kind", says="causeway")
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

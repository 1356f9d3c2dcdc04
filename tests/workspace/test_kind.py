"""tools/kind.py, with commands in the place of kind and docker that note how they are called."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import ROOT


class Commands:
    """A `kind` that fails at some of its steps, and a `docker`.

    Args:
        directory: Where they are put.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted = directory / "noted"

    def make(self, name: str, failing: str = "nothing", says: str = "") -> None:
        """Make one of them, which prints `says` and fails where its arguments hold `failing`."""
        file = self._directory / name
        noting = f'echo "{name} $*" >> {self._noted}'
        file.write_text(f'#!/bin/sh\n{noting}\necho {says}\ncase "$*" in *{failing}*) exit 3;; esac\n')
        file.chmod(0o755)

    def run(self, step: str) -> subprocess.CompletedProcess[str]:
        """Runs a step of the tool with them."""
        named = {name.upper(): str(self._directory / name) for name in ("kind", "docker")}
        command = [sys.executable, str(ROOT / "tools" / "kind.py"), step]
        return subprocess.run(command, env=os.environ | named, capture_output=True, text=True, check=False)

    @property
    def calls(self) -> list[str]:
        """How `kind` was called, each with its first two words."""
        lines = [line.split() for line in self._noted.read_text().splitlines()]
        return [" ".join(words[1:3]) for words in lines if words[0] == "kind"]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_what_is_missing_is_said(commands: Commands) -> None:
    """Without kind, or without an engine that answers, nothing is begun: the message names it, the code is 69."""
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
    """`up` makes the cluster of deploy/k8s/kind and no more, `load` brings all our images, `down` removes it."""
    commands.make("kind")
    commands.make("docker")
    assert [commands.run(step).returncode for step in ("up", "load", "down")] == [0, 0, 0]
    assert commands.calls == ["get clusters", "create cluster", "load docker-image", "delete cluster"]


def test_a_cluster_that_fails_leaves_its_logs_and_goes(commands: Commands) -> None:
    """`all` ends with the failing step's code; what the cluster has logged is exported before it is removed."""
    commands.make("kind", failing="load")
    commands.make("docker")
    assert commands.run("all").returncode == 3
    wanted = ["get clusters", "create cluster", "load docker-image", "export logs", "delete cluster"]
    assert commands.calls == wanted


@pytest.mark.parametrize("step", ["up", "all"])
def test_a_cluster_that_is_there_is_left_alone(commands: Commands, step: str) -> None:
    """A cluster of the same name may be somebody's: it is neither used nor removed, and the message says how to."""
    commands.make("kind", says="causeway")
    commands.make("docker")
    refused = commands.run(step)
    assert refused.returncode == 73
    assert "make kind-down" in refused.stderr
    assert commands.calls == ["get clusters"]


def test_actions_are_pinned() -> None:
    """Workflows name each action of others by the digest of a commit, with the version in a comment."""
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        for line in workflow.read_text().splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line

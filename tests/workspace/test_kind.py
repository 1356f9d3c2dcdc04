"""tools/kind.py, with commands in the place of kind and docker that note how they are called."""

import os
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

    def make(self, name: str, failing: str = "nothing") -> None:
        """Makes one of them."""
        file = self._directory / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {self._noted}\ncase "$*" in *{failing}*) exit 3;; esac\n')
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
    assert commands.calls == ["create cluster", "load docker-image", "delete cluster"]


def test_a_cluster_that_fails_leaves_its_logs_and_goes(commands: Commands) -> None:
    """`all` ends with the failing step's code; what the cluster has logged is exported before it is removed."""
    commands.make("kind", failing="load")
    commands.make("docker")
    assert commands.run("all").returncode == 3
    assert commands.calls == ["create cluster", "load docker-image", "export logs", "delete cluster"]

import subprocess
import sys
from pathlib import Path

import pytest


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers; None where it refuses."""
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def test_the_generated_code_is_in_step(root: Path) -> None:
    """libs/contracts is what today's proto/ generates."""
    result = subprocess.run(
        [sys.executable, "tools/generate.py", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contracts_are_linted(root: Path) -> None:
    """The contracts keep buf's rules of style, and every element has its comment."""
    result = subprocess.run([_tool("buf"), "lint", "proto"], cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contracts_break_nobody(root: Path) -> None:
    """What a deployed service or client knows of a contract stays true.

    Changes that are not committed yet are compared with the last commit, else that commit with the one before. A
    clone without history, and a checkout without git, have nothing that could be broken.
    """
    changed = _git(root, "status", "--porcelain", "--", "proto")
    before = "HEAD" if changed else "HEAD~1"
    if changed is None or not _git(root, "ls-tree", before, "proto/"):
        pytest.skip(f"there is no earlier version of proto/ here ({before})")
    commit = _git(root, "rev-parse", before)
    repository = _git(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
    result = subprocess.run(
        [_tool("buf"), "breaking", "proto", "--against", f"{repository}#ref={commit},subdir=proto,format=git"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr

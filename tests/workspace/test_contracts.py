import subprocess
import sys
from pathlib import Path

import pytest


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _git(root: Path, *arguments: str) -> str | None:
    """Return git's output, or None if it fails."""
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def test_the_generated_code_is_current(root: Path) -> None:
    """libs/contracts equals the code that is generated from proto/."""
    result = subprocess.run(
        [sys.executable, "tools/generate.py", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contracts_are_linted(root: Path) -> None:
    """The contracts follow buf's style rules, and every element has a comment."""
    result = subprocess.run([_tool("buf"), "lint", "proto"], cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_contracts_stay_compatible(root: Path) -> None:
    """The contracts stay compatible with deployed services and clients.

    If proto/ has uncommitted changes, they are compared with the last commit. Otherwise the last commit is compared
    with the commit before it. The test is skipped if git has no earlier version.
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

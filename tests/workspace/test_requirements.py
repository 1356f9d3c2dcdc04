import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES: dict[str, str] = runpy.run_path(str(ROOT / "tools" / "lock.py"))["SOURCES"]


def test_everything_that_is_installed_has_a_lock() -> None:
    """Each lock file has a source, each source has a lock file, and each package with a program has a lock file."""
    assert sorted(path.stem for path in (ROOT / "requirements").glob("*.txt")) == sorted(SOURCES)
    assert [source for source in SOURCES.values() if not (ROOT / source).is_file()] == []
    programs = {
        str(path.relative_to(ROOT))
        for path in (*ROOT.glob("*/*/pyproject.toml"), ROOT / "cli" / "pyproject.toml")
        if "scripts" in tomllib.loads(path.read_text())["project"]
    }
    assert programs <= set(SOURCES.values())


@pytest.mark.registry
@pytest.mark.slow
def test_the_locks_are_current() -> None:
    """The lock files match their sources. `make lock` updates them."""
    result = subprocess.run(
        [sys.executable, "tools/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("name", SOURCES)
def test_a_lock_has_only_versions_and_hashes(name: str) -> None:
    """Each requirement of a lock file is a version with hashes. It has no URL, option or file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    requirements = text.replace("\\\n", " ").splitlines()
    invalid = [
        line
        for line in requirements
        if not line.startswith("#")
        and not re.fullmatch(r"[a-z0-9.-]+==[^\s;]+( ; [^#@]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
    ]
    assert invalid == []
    assert "://" not in text
    assert "@" not in text


def test_packages_have_the_same_versions() -> None:
    """Each package uses the same versions of its dependencies as the development environment."""
    pinned: dict[str, dict[str, set[str]]] = {}
    for name, source in SOURCES.items():
        if source.endswith("pyproject.toml"):
            for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
                if match := re.match(r"([a-z0-9.-]+)==(\S+)", line):
                    pinned.setdefault(match[1], {}).setdefault(name, set()).add(match[2])
    different = {
        requirement: versions
        for requirement, versions in pinned.items()
        if any(not each <= versions.get("dev", set()) for each in versions.values())
    }
    assert different == {}

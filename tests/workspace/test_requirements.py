import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES: dict[str, str] = runpy.run_path(str(ROOT / "tools" / "lock.py"))["SOURCES"]


def test_there_is_a_lock_for_everything_that_is_installed() -> None:
    """Each lock has a source, each source has a lock, and each package with its own program has a lock."""
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
def test_the_locks_are_in_step() -> None:
    """The pinned requirements match the pyproject files. `make lock` renews them."""
    result = subprocess.run(
        [sys.executable, "tools/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"\n{result.stdout}{result.stderr}"


@pytest.mark.parametrize("name", SOURCES)
def test_a_lock_holds_versions_and_hashes_only(name: str) -> None:
    """Each requirement is a version with hashes, without an address, an option or a file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    requirements = text.replace("\\\n", " ").splitlines()
    wrong = [
        line
        for line in requirements
        if not line.startswith("#")
        and not re.fullmatch(r"[a-z0-9.-]+==[^\s;]+( ; [^#@]+?)?(\s+--hash=sha256:[0-9a-f]{64})+", line)
    ]
    assert wrong == []
    assert "://" not in text
    assert "@" not in text


def test_one_version_of_everything() -> None:
    """All packages use the same version of a dependency as the development environment."""
    pinned: dict[str, dict[str, set[str]]] = {}
    for name, source in SOURCES.items():
        if source.endswith("pyproject.toml"):
            for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
                if match := re.match(r"([a-z0-9.-]+)==(\S+)", line):
                    pinned.setdefault(match[1], {}).setdefault(name, set()).add(match[2])
    other = {
        requirement: versions
        for requirement, versions in pinned.items()
        if any(not each <= versions.get("dev", set()) for each in versions.values())
    }
    assert other == {}

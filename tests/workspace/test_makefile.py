import re
import subprocess
from pathlib import Path


def test_help_lists_every_target(root: Path) -> None:
    """`make help` describes every target in one line."""
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9][a-z0-9-]*):", makefile, re.MULTILINE))
    command = ["make", "--no-print-directory", "help"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    listed = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert set(listed) == targets
    assert all(len(text) > 10 for text in listed.values())


def test_every_target_is_phony(root: Path) -> None:
    """Every target is phony, so that it also runs if a file has its name."""
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9][a-z0-9-]*):", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets


def test_every_package_is_installed(root: Path) -> None:
    """`make setup` installs all packages of the workspace."""
    (members,) = re.findall(r"^MEMBERS := (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    packages = sorted(str(path.parent.relative_to(root)) for path in root.glob("*/*/pyproject.toml"))
    assert sorted(members.split()) == sorted([*packages, "cli"])

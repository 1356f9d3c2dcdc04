import re
from pathlib import Path

import pytest

FAULT_FILES = ("test_faults.py", "test_frozen.py", "test_links.py", "test_garbage.py", "test_disk_full.py")
OTHER_FILES = ("test_killed_worker.py", "test_rolling.py", "test_stopping.py")


@pytest.fixture
def named(root: Path) -> set[tuple[str, str]]:
    """Return the file and the name of each test in docs/reliability.md. A file name without a directory is in
    tests/stack.
    """
    text = (root / "docs" / "reliability.md").read_text()
    found = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    return {(path if "/" in path else f"tests/stack/{path}", name) for path, name in found}


def test_every_named_test_exists(root: Path, named: set[tuple[str, str]]) -> None:
    """The tests that docs/reliability.md names exist."""
    assert len(named) > 20
    for path, name in named:
        source = (root / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_every_test_of_a_fault_is_named(root: Path, named: set[tuple[str, str]]) -> None:
    """docs/reliability.md has a row for each test of a fault."""
    for file in (*FAULT_FILES, *OTHER_FILES):
        source = (root / "tests" / "stack" / file).read_text()
        for name in re.findall(r"^async def (test_\w+)\(", source, re.MULTILINE):
            assert (f"tests/stack/{file}", name) in named, f"{file}::{name} has no row in docs/reliability.md"

import re
from pathlib import Path

import pytest

ABOUT_FAULTS = ("test_faults.py", "test_frozen.py", "test_links.py", "test_garbage.py", "test_disk_full.py")
FURTHER = ("test_killed_worker.py", "test_rolling.py", "test_stopping.py")


@pytest.fixture
def named(root: Path) -> set[tuple[str, str]]:
    """Return the file and the name of each test on the page of faults. A bare file name is in tests/stack."""
    text = (root / "docs" / "reliability.md").read_text()
    found = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    return {(path if "/" in path else f"tests/stack/{path}", name) for path, name in found}


def test_every_named_test_is_there(root: Path, named: set[tuple[str, str]]) -> None:
    """The tests on the page exist."""
    assert len(named) > 20
    for path, name in named:
        source = (root / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_every_fault_is_named(root: Path, named: set[tuple[str, str]]) -> None:
    """Each test of a fault has a row on the page."""
    for file in (*ABOUT_FAULTS, *FURTHER):
        source = (root / "tests" / "stack" / file).read_text()
        for name in re.findall(r"^async def (test_\w+)\(", source, re.MULTILINE):
            assert (f"tests/stack/{file}", name) in named, f"{file}::{name} has no row in docs/reliability.md"

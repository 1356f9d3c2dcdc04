import re
from pathlib import Path

import pytest


@pytest.fixture
def rows(root: Path) -> list[list[str]]:
    """Return the rows of the table of fields: stage, field, module, tests."""
    text = (root / "docs" / "protocols.md").read_text()
    table = text[text.index("\n### Fields") :]
    table = table[: table.index("\n## ")]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert found[0] == ["stage", "field", "rendered in", "tested by"]
    return found[1:]


def test_every_field_is_held_by_a_test_that_is_there(root: Path, rows: list[list[str]]) -> None:
    """For each field, the page names existing tests of the gateway."""
    assert len(rows) > 20
    for _, field, _, tests in rows:
        named = re.findall(r"`([\w/]*test_\w+\.py)::(test_\w+)`", tests)
        assert named, field
        for module, test in named:
            tests_of = root / "services" / "gateway" / "tests" / ("" if "/" in module else "dialects/rag_chat")
            source = (tests_of / module).read_text()
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{module}::{test}"


def test_every_field_is_rendered_by_a_module_that_is_there(root: Path, rows: list[list[str]]) -> None:
    """The modules on the page exist, and the page names all modules of each stage."""
    protocols = root / "services" / "gateway" / "src" / "gateway" / "dialects" / "rag_chat"
    named = {module.strip("`") for _, _, module, _ in rows}
    assert all((protocols / module).is_file() for module in named)
    stages = {path.name for path in protocols.glob("chat_*.py")}
    assert stages <= named

import re
from pathlib import Path

import pytest


@pytest.fixture
def rows(root: Path) -> list[list[str]]:
    """Return the rows of the table of fields in docs/protocols.md: stage, field, module, tests."""
    text = (root / "docs" / "protocols.md").read_text()
    table = text[text.index("\n### Fields") :]
    table = table[: table.index("\n## ")]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert found[0] == ["stage", "field", "rendered in", "tested by"]
    return found[1:]


def test_every_field_has_an_existing_test(root: Path, rows: list[list[str]]) -> None:
    """The tests that docs/protocols.md names for each field exist in the gateway."""
    assert len(rows) > 20
    for _, field, _, tests in rows:
        named = re.findall(r"`([\w/]*test_\w+\.py)::(test_\w+)`", tests)
        assert named, field
        for module, test in named:
            directory = root / "services" / "gateway" / "tests" / ("" if "/" in module else "dialects/rag_chat")
            source = (directory / module).read_text()
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{module}::{test}"


def test_every_field_has_an_existing_module(root: Path, rows: list[list[str]]) -> None:
    """The modules that docs/protocols.md names exist. The page names the modules of all stages."""
    protocols = root / "services" / "gateway" / "src" / "gateway" / "dialects" / "rag_chat"
    named = {module.strip("`") for _, _, module, _ in rows}
    assert all((protocols / module).is_file() for module in named)
    stages = {path.name for path in protocols.glob("chat_*.py")}
    assert stages <= named

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Create a few files. The stub does not read their content."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("one.md", "two.md"):
        (folder / name).write_text("x")
    return folder


def _demo(causeway: list[str], environment: dict[str, str], corpus: Path) -> "subprocess.CompletedProcess[str]":
    temporary = corpus.parent / "temporary"
    temporary.mkdir()
    return subprocess.run(
        [*causeway, "demo", "--corpus", str(corpus)],
        env={**environment, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_three_cited_answers(causeway: list[str], stub_environment: dict[str, str], corpus: Path) -> None:
    """The demo prints the answers of three routes with citations and times, exits with 0 and deletes its data."""
    done = _demo(causeway, stub_environment, corpus)
    assert done.returncode == 0, done.stderr
    for shown in (
        "succeeded: one.md",
        "POST /2024-04/chat/stream",
        "safety-manual.pdf, page 3",
        "brannoch-bridge-maintenance-plan.pdf, page 4",
        "leave-and-absence.md, page 1",
        "Done.",
    ):
        assert shown in done.stdout
    assert re.search(r"retrieve .* 4\.5 ms", done.stdout)
    assert "\x1b" not in done.stdout + done.stderr
    assert list((corpus.parent / "temporary").iterdir()) == []


def test_a_wrong_citation_fails(causeway: list[str], stub_environment: dict[str, str], corpus: Path) -> None:
    """A wrong citation causes exit code 1 with the expected and the actual source, and keeps the logs."""
    done = _demo(causeway, {**stub_environment, "STUB_SOURCE": "pets.md"}, corpus)
    assert done.returncode == 1
    assert "should cite safety-manual.pdf#page=3; it cites pets.md" in done.stderr
    assert "logs are in" in done.stderr
    assert len(list((corpus.parent / "temporary").glob("*/logs/gateway.log"))) == 1


def test_no_corpus(causeway: list[str], stub_environment: dict[str, str], tmp_path: Path) -> None:
    """If the corpus is missing, the demo exits with 1 before it starts a service. The message names --corpus."""
    done = _demo(causeway, stub_environment, tmp_path / "missing")
    assert done.returncode == 1
    assert "--corpus" in done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []

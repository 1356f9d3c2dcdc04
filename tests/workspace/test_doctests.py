"""The examples in docstrings are correct."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _modules() -> list[str]:
    """Return the modules with examples."""
    return sorted(
        ".".join(path.with_suffix("").parts[path.parts.index("src") + 1 :])
        for pattern in ("libs/*/src", "services/*/src", "cli/src", "tests/support/src")
        for source in ROOT.glob(pattern)
        for path in source.rglob("*.py")
        if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)
    )


@pytest.mark.parametrize("name", _modules())
def test_examples_are_correct(name: str) -> None:
    """Each example of the module gives the result that its docstring shows."""
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_algorithms_have_examples() -> None:
    """The modules of these algorithms have examples: budget, hold-back, fusion, sentences and SSE framing."""
    assert {
        "gateway.answering.budget",
        "gateway.answering.hold_back",
        "retriever.search.fusion",
        "text.sentences",
        "generator.openai.sse",
    } <= set(_modules())

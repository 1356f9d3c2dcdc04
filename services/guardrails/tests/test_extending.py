"""The example detector of docs/extending.md has the behaviour that the page describes."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from causeway_testing.guardrails.detectors import resources
from detection.domain import Action, DetectionContext, DetectorSpec, OnError
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from guardrails.detectors import registry

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_NAME = "ticket_numbers"


def _blocks(language: str) -> list[str]:
    """Return the fenced blocks of the section on detectors."""
    section = (_DOCS / "extending.md").read_text().partition("\n## A detector\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def _load(name: str, source: str, folder: Path) -> ModuleType:
    """Import a module from its source; the caller's monkeypatch removes it again."""
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the registry with the lines of the example, after importing the module of the example."""
    module, registration, _ = _blocks("python")
    for name in (f"guardrails.detectors.{_NAME}", "registry_with_the_example", "test_of_the_example"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that it is gone after the test
    _load(f"guardrails.detectors.{_NAME}", module, tmp_path)
    importing, entry = registration.split("\n\n")
    source = inspect.getsource(registry)
    source = source.replace("\n\n\n@dataclass", f"\n{importing}\n\n\n@dataclass", 1)
    source = source.replace("    ]\n", f"{entry}    ]\n", 1)
    return _load("registry_with_the_example", source, tmp_path)


async def test_a_request_can_ask_for_the_example(registered: ModuleType) -> None:
    """With the page's lines in the registry, the catalogue lists the detector and a rule redacts its findings."""
    catalogue = Catalogue(registered.built_in(resources()))
    assert _NAME in [info.detector_id for info in catalogue.infos()]
    rules = catalogue.rules([DetectorSpec(_NAME, Action.REDACT, OnError.BLOCK, b'{"projects": ["OPS"]}')])
    workers = ThreadPool(1)
    [verdict], failures = await judge(["See OPS-1234."], rules, DetectionContext(), workers)
    workers.close()
    assert (verdict.redacted_text, failures) == ("See [REDACTED].", [])


def test_the_tests_of_the_example_pass(registered: ModuleType, tmp_path: Path) -> None:
    """Each test function that the page shows passes."""
    tests = _load("test_of_the_example", _blocks("python")[2], tmp_path)
    functions = [each for name, each in vars(tests).items() if name.startswith("test_")]
    assert len(functions) == 2
    for function in functions:
        function()


def test_the_documented_row_has_the_columns_of_the_table() -> None:
    """The row that the page shows has the columns of the table of detectors."""
    [row] = _blocks("markdown")
    header = next(line for line in (_DOCS / "guardrails.md").read_text().splitlines() if line.startswith("| id |"))
    assert row.startswith(f"| `{_NAME}` |")
    assert row.strip().count("|") == header.count("|")

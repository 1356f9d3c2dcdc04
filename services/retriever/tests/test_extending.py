"""The store of docs/extending.md works as the page says. stores/test_contract.py runs the contract on it."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.settings import with_stores
from retriever.stores import registry
from retriever.stores.kind import StoreKind
from servicekit.errors import InvalidRequest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def kinds(example: ModuleType, example_registration: str) -> tuple[StoreKind[Any], ...]:
    """Return the kinds of stores, with the example registered as on the page."""
    del example  # the registration imports it
    namespace = dict(vars(registry))
    exec(example_registration, namespace)
    found: tuple[StoreKind[Any], ...] = namespace["STORES"]
    return found


async def test_the_registered_store_is_chosen_and_keeps_documents(
    kinds: tuple[StoreKind[Any], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable selects the store. Its documents survive a restart."""
    monkeypatch.setenv("CAUSEWAY_INDEX_DIRECTORY", str(tmp_path / "indexes"))
    settings = with_stores(kinds)()
    assert [kind.name for kind in kinds] == ["edge", "qdrant", "file"]
    for is_first in (True, False):
        kind = registry.chosen(settings, kinds)
        assert kind.name == "file"
        bench = await Bench.open(await kind.open(settings, Scheduler()))
        if is_first:
            await bench.put(Document("d", generation=1), ["the ferry leaves at nine"])
        assert [passage.text for passage in await bench.ask("ferry")] == ["the ferry leaves at nine"]
        await bench.aclose()


def test_the_first_kind_is_the_default(kinds: tuple[StoreKind[Any], ...]) -> None:
    """Settings that choose no store get the first kind."""
    assert registry.chosen(with_stores(kinds)(), kinds).name == "edge"


def test_several_stores_are_refused(kinds: tuple[StoreKind[Any], ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that choose two stores are refused, and the error names both stores."""
    monkeypatch.setenv("CAUSEWAY_INDEX_DIRECTORY", "indexes")
    monkeypatch.setenv("CAUSEWAY_QDRANT_URL", "http://qdrant:6334")
    with pytest.raises(InvalidRequest, match="qdrant, file"):
        registry.chosen(with_stores(kinds)(), kinds)


@pytest.mark.parametrize(("setting", "value"), [("QUANTIZATION", "scalar"), ("ON_DISK", "true")])
def test_a_store_refuses_unsupported_vector_settings(
    kinds: tuple[StoreKind[Any], ...], monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    """A store that supports only full vectors refuses the settings by name. The other stores accept them."""
    monkeypatch.setenv(f"CAUSEWAY_QDRANT_{setting}", value)
    assert registry.chosen(with_stores(kinds)(), kinds).name == "edge"
    monkeypatch.setenv("CAUSEWAY_INDEX_DIRECTORY", "indexes")
    with pytest.raises(InvalidRequest, match=f"'file' does not support CAUSEWAY_QDRANT_{setting}={value}"):
        registry.chosen(with_stores(kinds)(), kinds)


def test_the_documentation_lists_every_store() -> None:
    """The table of retrieval.md has a row for each registered kind, and no other rows."""
    section = (DOCS / "retrieval.md").read_text().partition("\n## Vector stores\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [kind.name for kind in registry.STORES]


async def test_each_published_index_has_a_file(example: ModuleType, tmp_path: Path) -> None:
    """The directory holds one file for each published index."""
    bench = await Bench.open(example.FileStore(tmp_path))
    for count, name in enumerate((INDEX, "other"), 1):
        await bench.put(Document("d", generation=1), ["the ferry"], index=name)
        assert len(list(tmp_path.glob("*.index"))) == len(await bench.indexes.of_tenant("local")) == count
    await bench.aclose()

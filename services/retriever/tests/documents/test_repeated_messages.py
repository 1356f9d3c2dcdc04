"""A repeated upsert or update succeeds only after the stored version is durable."""

from dataclasses import replace

import pytest
from causeway_testing.retriever.bench import DIMENSION, INDEX, Bench
from causeway_testing.retriever.store import MemoryCollection
from retriever.domain.changes import Outcome
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.stores.edge.collection import EdgeCollection
from servicekit.principal import LOCAL

TEXTS = ["a ferry", "a bridge"]
SPEC = IndexSpec(LOCAL.tenant, INDEX, f"hashed-words-{DIMENSION}", DIMENSION)


class FailingSteps:
    """Makes methods of all collections fail while their names are in ``names``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        for owner in (MemoryCollection, EdgeCollection):
            for name in ("sync", "publish"):
                self._replace(monkeypatch, owner, name)

    def _replace(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        original = getattr(owner, name)

        async def method(*args: object) -> None:
            if name in self.names:
                raise OSError(name)
            await original(*args)

        monkeypatch.setattr(owner, name, method)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> FailingSteps:
    """Return the switch for failing methods."""
    return FailingSteps(monkeypatch)


async def test_a_repeated_upsert_after_a_failed_sync(bench: Bench, failing: FailingSteps) -> None:
    """After a failed sync, a repeated upsert fails until a sync succeeds."""
    document = Document("d", generation=1)
    failing.names = {"sync"}
    for _ in range(2):
        with pytest.raises(OSError, match="sync"):
            await bench.put(document, TEXTS)
    failing.names = set()
    assert (await bench.put(document, TEXTS)).outcome is Outcome.UNCHANGED
    assert {passage.text for passage in await bench.ask("ferry bridge", top=10)} == set(TEXTS)


async def test_a_repeated_update_after_a_failed_sync(bench: Bench, failing: FailingSteps) -> None:
    """After a failed sync, a repeated update fails until a sync succeeds."""
    stored = Document("d", sha256="ab" * 32, generation=1)
    await bench.put(stored, TEXTS)
    failing.names = {"sync"}
    update = replace(stored, category="new", generation=2)
    for _ in range(2):
        with pytest.raises(OSError, match="sync"):
            await bench.upserts.update(LOCAL, INDEX, update)
    failing.names = set()
    assert (await bench.upserts.update(LOCAL, INDEX, update)).document.category == "new"


async def test_a_repeated_upsert_publishes_the_index(bench: Bench, failing: FailingSteps) -> None:
    """After a failed publication of a new index, a repeated upsert publishes it, so the document remains."""
    document = Document("d", generation=1)
    failing.names = {"publish"}
    async with bench.indexes.writing(SPEC):  # another upsert keeps the unpublished index
        for _ in range(2):
            with pytest.raises(OSError, match="publish"):
                await bench.put(document, TEXTS)
        failing.names = set()
        assert (await bench.put(document, TEXTS)).outcome is Outcome.UNCHANGED
    assert (await bench.catalogue.document(LOCAL, INDEX, "d")).document_id == "d"

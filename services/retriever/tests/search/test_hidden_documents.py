"""Scores and order of search results do not depend on hidden documents."""

from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.domain.document import AccessControl, Document
from retriever.domain.filter import Filter, MatchAny
from retriever.domain.query import Mode, Passage
from retriever.ports.store import ChunkPoint
from servicekit import keys
from servicekit.principal import LOCAL, Principal

ANN = Principal("local", "ann", ("ann",), ("crew",), ("ask",))
GUEST = Principal("local", "guest", roles=("ask",))
ABOUT = ["ferry", "harbour", "bridge", "toll", "ticket", "crew", "winter", "timetable"]
QUESTION = "When does the ferry leave the harbour in winter?"
QUERIES: list[dict[str, Any]] = [
    {"mode": Mode.TEXT, "expand": False},
    {"mode": Mode.TEXT, "expand": True},
    {"mode": Mode.HYBRID},
    {"mode": Mode.HYBRID, "diversity": 0.5, "captions": True, "neighbours": 1},
    {"mode": Mode.HYBRID, "filter": Filter(must=(MatchAny("category", ("even",)),))},
    {"mode": Mode.TEXT, "minimum_dense_score": 0.1},
]


@pytest.fixture(params=["memory", "edge", "qdrant", "example"])
def kind(request: pytest.FixtureRequest) -> str:
    """Parametrize the tests with all stores."""
    name: str = request.param
    return name


@pytest.fixture
async def town(bench: Bench) -> Bench:
    """Fill an index with enough documents for expansion. Only the crew may see every third document."""
    for number in range(30):
        words = [ABOUT[(number * step) % len(ABOUT)] for step in (1, 2, 3, 5)]
        text = f"The {words[0]} and the {words[1]} matter to the {words[2]}. Number {number} is about a {words[3]}."
        access = AccessControl(groups=("crew",) if number % 3 == 0 else ())
        category = "even" if number % 2 == 0 else "odd"
        await bench.put(
            Document(f"d{number}", generation=1, access=access, category=category), [text, f"{text} {number}"]
        )
    return bench


async def found(bench: Bench, principal: Principal) -> list[list[Passage]]:
    """Return the passages that a caller finds by each query."""
    return [await bench.ask(QUESTION, principal, top=12, **query) for query in QUERIES]


async def test_hidden_documents_do_not_change_results(town: Bench) -> None:
    """If documents that a caller may not see are added, removed or being written, the caller finds the same
    passages in the same order, with the same scores and captions.
    """
    before = {principal: await found(town, principal) for principal in (ANN, GUEST)}
    assert all(query for queries in before.values() for query in queries)
    assert before[ANN] != before[GUEST]
    hidden = Document("hidden", generation=1, access=AccessControl(oids=("bob",)))
    texts = [f"The ferry leaves the harbour in winter, says page {number}." for number in range(40)]
    await town.put(hidden, texts)
    await town.put(replace(hidden, document_id="leaving"), texts)
    await town.catalogue.delete_documents(LOCAL, INDEX, ["leaving"])
    index = await town.indexes.get("local", INDEX)
    await index.collection.mark("being written")
    terms = await town.encoder.encode_documents(texts, "en")
    points = [
        ChunkPoint(str(keys.point_id(INDEX, "being written", 1, chunk.number, chunk.text)), chunk, chunk_terms)
        for chunk, chunk_terms in zip(await town.chunks(texts), terms, strict=True)
    ]
    await index.collection.add_chunks(Document("being written", generation=1), points)
    for principal, expected in before.items():
        assert await found(town, principal) == expected


async def test_another_tenant_does_not_change_results(town: Bench) -> None:
    """Documents of another tenant in an index of the same name do not change the results."""
    before = {principal: await found(town, principal) for principal in (ANN, LOCAL)}
    other = Principal("other", roles=("admin",))
    await town.put(
        Document("theirs", generation=1), ["The ferry leaves the harbour in winter."] * 20, principal=other
    )
    for principal, expected in before.items():
        assert await found(town, principal) == expected

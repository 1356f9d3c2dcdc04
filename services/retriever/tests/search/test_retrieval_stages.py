"""The later stages of a search: expansion, reranking, diversity, neighbours, captions."""

from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench, steps
from retriever.domain.changes import Commit
from retriever.domain.document import AccessControl, Chunk, Document
from retriever.domain.index import Fusion
from retriever.domain.query import Mode, Passage, Query, Rerank, Retrieved
from retriever.rerankers.registry import Rerankers
from retriever.rerankers.resilience import ResilientReranker
from servicekit.errors import InvalidRequest, NotFound, Unavailable
from servicekit.principal import LOCAL, Principal

TEXTS = ["the ferry leaves the harbour", "tickets for the ferry", "bridge tolls rise", "a map of the town"]


@pytest.fixture
async def harbour(bench: Bench) -> Bench:
    """Fill an index with one document of four chunks."""
    await bench.put(Document("d", "harbour.pdf", generation=1), TEXTS)
    return bench


async def retrieved(bench: Bench, text: str, **query: Any) -> Retrieved:
    return await bench.retrieval.retrieve(LOCAL, Query(**{"indexes": (INDEX,), "text": text, **query}))


def texts(passages: tuple[Passage, ...] | list[Passage]) -> list[str]:
    return [passage.text for passage in passages]


async def test_weights_of_a_hybrid_search(harbour: Bench) -> None:
    """A weight of 1 on one side gives the order of that side."""
    for fusion in Fusion:
        for weight, mode in ((1.0, Mode.VECTORS), (0.0, Mode.TEXT)):
            hybrid = await harbour.ask("bridge tickets", fusion=fusion, dense_weight=weight, expand=False)
            alone = await harbour.ask("bridge tickets", mode=mode)
            assert texts(hybrid)[: len(alone)] == texts(alone)


async def test_expansion_finds_passages_without_a_query_word(bench: Bench) -> None:
    """A passage without a query word is found by words that the best passages have in common."""
    fares = [f"ferry fare discount for pensioners number{number}" for number in range(6)]
    other = [f"harbour office opens at hour{number}" for number in range(20)]
    await bench.put(Document("d", generation=1), [*fares, "fare discount for pensioners", *other])
    plain = await retrieved(bench, "ferry", mode=Mode.TEXT, top=20)
    more = await retrieved(bench, "ferry", mode=Mode.TEXT, top=20, expand=True)
    assert "fare discount for pensioners" not in texts(plain.passages)
    # Text search finds six passages, which are too few for an expansion.
    assert texts(more.passages) == texts(plain.passages)
    hybrid = await retrieved(bench, "ferry", top=7)
    assert "expand" in [step.name for step in hybrid.steps]
    assert texts(hybrid.passages)[6] == "fare discount for pensioners"
    assert hybrid.passages[6].sparse_score == 0.0
    assert "expand" not in [step.name for step in (await retrieved(bench, "ferry", expand=False)).steps]


async def test_passages_have_the_order_of_the_reranker(harbour: Bench) -> None:
    """Passages have the order of the reranker's scores. Passages below the minimum score are left out."""
    found = await retrieved(harbour, "map of the bridge", rerank=Rerank(), top=2)
    assert texts(found.passages) == [TEXTS[3], TEXTS[0]]
    assert [passage.reranker_score for passage in found.passages] == [0.75, 0.25]
    assert (found.reranker, found.not_reranked) == ("words", "")
    # The reranker receives all candidates, not only the requested number of passages.
    assert len(harbour.reranker.calls[0][1]) == 4
    found = await retrieved(harbour, "map of the bridge", rerank=Rerank("words", minimum_score=0.5))
    assert texts(found.passages) == [TEXTS[3]]


async def test_a_search_without_a_reranker_keeps_its_order(harbour: Bench) -> None:
    """A search without a reranker keeps its order. An unknown reranker causes NotFound."""
    plain = await retrieved(harbour, "ferry tickets")
    assert plain.reranker == ""
    assert harbour.reranker.calls == []
    with pytest.raises(NotFound, match="'other'"):
        await retrieved(harbour, "ferry", rerank=Rerank("other"))
    harbour.rerankers = Rerankers()
    none = await harbour.retrieval_with(harbour.embedder).retrieve(
        LOCAL, Query((INDEX,), "ferry tickets", rerank=Rerank(minimum_score=5.0))
    )
    assert texts(none.passages) == texts(plain.passages)
    assert (none.reranker, none.not_reranked) == ("", "")


async def test_a_reranker_that_fails(harbour: Bench) -> None:
    """If the reranker fails, the order stays, and the result has the reason.

    If a required reranker fails, the search fails.
    """
    plain = await retrieved(harbour, "ferry tickets")
    harbour.reranker.failure = Unavailable("The reranker 'words' cannot be reached.")
    found = await retrieved(harbour, "ferry tickets", rerank=Rerank(minimum_score=5.0))
    assert texts(found.passages) == texts(plain.passages)
    assert found.not_reranked == "The reranker 'words' cannot be reached."
    assert all(passage.reranker_score is None for passage in found.passages)
    harbour.rerankers = Rerankers([ResilientReranker(harbour.reranker, "words", required=True)])
    with pytest.raises(Unavailable, match="cannot be reached"):
        await harbour.retrieval_with(harbour.embedder).retrieve(LOCAL, Query((INDEX,), "ferry", rerank=Rerank()))


async def test_passages_beyond_the_candidates_come_last(harbour: Bench) -> None:
    """Passages beyond the reranker's number of candidates follow the reranked ones."""
    harbour.rerankers = Rerankers([ResilientReranker(harbour.reranker, "words", candidates=2)])
    retrieval = harbour.retrieval_with(harbour.embedder)
    found = (await retrieval.retrieve(LOCAL, Query((INDEX,), "ferry tickets", rerank=Rerank(), top=4))).passages
    assert [passage.reranker_score is None for passage in found] == [False, False, True, True]


async def test_diverse_passages(bench: Bench) -> None:
    """A copy of the best passage follows a different passage."""
    copies = ["ferry tickets at the harbour office"] * 3
    await bench.put(Document("d", generation=1), [*copies, "ferry timetable"])
    assert texts(await bench.ask("ferry tickets", top=2)) == copies[:2]
    assert texts(await bench.ask("ferry tickets", top=2, diversity=0.6)) == [copies[0], "ferry timetable"]


async def section(bench: Bench) -> None:
    chunks = await bench.chunks([f"part {number} of the text" for number in range(6)])
    placed = [
        Chunk(chunk.number, chunk.text, chunk.text, 1 if chunk.number < 4 else 2, ("Part",), chunk.vector)
        for chunk in chunks
    ]
    document = Document("s", generation=1, access=AccessControl(oids=("ann",)))
    await bench.upserts.upsert(steps(bench.begin(document), placed, Commit(len(placed))))


async def test_neighbours_of_the_same_section(bench: Bench) -> None:
    """Neighbours extend a passage within its page and section, and no chunk is shown twice."""
    await section(bench)
    [passage] = await bench.ask("part 2", top=1, mode=Mode.TEXT, neighbours=1)
    assert (passage.number, passage.first, passage.last) == (2, 1, 3)
    assert passage.text == "part 1 of the text\n\npart 2 of the text\n\npart 3 of the text"
    [passage] = await bench.ask("part 5", top=1, mode=Mode.TEXT, neighbours=3)
    assert (passage.first, passage.last) == (4, 5)
    two = await bench.ask("part text", top=2, neighbours=5)
    assert [(passage.first, passage.last) for passage in two] in ([(0, 3), (4, 5)], [(4, 5), (0, 3)])
    many = await bench.ask("part text", neighbours=2)
    shown = [number for passage in many for number in range(passage.first, passage.last + 1)]
    assert sorted(shown) == list(range(6))


async def test_neighbours_do_not_reveal_hidden_passages(bench: Bench) -> None:
    """A caller that may not see a passage does not find it by its neighbours."""
    await section(bench)
    for oid, count in (("ann", 1), ("bob", 0)):
        caller = Principal(tenant=LOCAL.tenant, user=oid, oids=(oid,))
        assert len(await bench.ask("part 2", caller, top=1, neighbours=2)) == count


async def test_captions_are_the_best_sentences(bench: Bench) -> None:
    """Captions are the best sentences of a passage, unchanged. A passage without a query word has none."""
    text = "The office is closed on Sunday. Tickets for the ferry cost 12 crowns. The map hangs outside."
    await bench.put(Document("d", generation=1), [text, "A bridge. It is long and has two lanes."])
    found = {
        passage.text: passage.captions for passage in await bench.ask("what do ferry tickets cost?", captions=True)
    }
    assert found[text] == ("Tickets for the ferry cost 12 crowns.",)
    assert set(found.values()) == {found[text], ()}
    assert all(passage.captions == () for passage in await bench.ask("ferry tickets"))


async def test_captions_do_not_end_at_an_abbreviation(bench: Bench) -> None:
    """A full stop behind an abbreviation does not end a caption."""
    text = "The office is closed. The fee is approx. 3.50 EUR. The map hangs outside."
    await bench.put(Document("d", generation=1), [text])
    (found,) = await bench.ask("what is the fee?", captions=True)
    assert found.captions == ("The fee is approx. 3.50 EUR.",)


async def test_invalid_options_are_refused(harbour: Bench) -> None:
    """A wrong option is refused, and the error names the field."""
    wrong: list[tuple[str, Any]] = [("neighbours", 11), ("diversity", 1.5), ("dense_weight", -0.1)]
    wrong += [("indexes", tuple(f"i{number}" for number in range(101))), ("diversity", float("nan"))]
    for field, value in wrong:
        with pytest.raises(InvalidRequest) as caught:
            await harbour.ask("ferry", **{field: value})
        assert caught.value.field == field

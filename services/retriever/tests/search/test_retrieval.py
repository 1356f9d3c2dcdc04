"""Retrieve: modes, scores, limits, several indexes, and errors."""

from typing import Any

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.recording_embedder import RecordingEmbedder
from embedding.models import EmbeddingModel, EmbeddingModels
from retriever.domain.document import Document
from retriever.domain.filter import Filter, MatchAny, Range
from retriever.domain.index import Fusion, IndexSettings, IndexSpec
from retriever.domain.query import Mode, Passage, Query, Source
from retriever.embedding.query_vectors import QueryVectors
from retriever.search.retrieval import MAX_QUERY_LENGTH
from servicekit.errors import Conflict, InvalidRequest, NotFound, PayloadTooLarge, Unavailable
from servicekit.principal import LOCAL

TEXTS = ["the ferry leaves the harbour", "tickets for the ferry", "bridge tolls rise", "a map of the town"]


@pytest.fixture
async def harbour(bench: Bench) -> Bench:
    """Fill an index with one document of four chunks."""
    await bench.put(Document("d", "harbour.pdf", metadata_json=b'{"year": 2024}', generation=1), TEXTS)
    return bench


def by_text(passages: list[Passage]) -> dict[str, Passage]:
    return {passage.text: passage for passage in passages}


async def test_hybrid_passages_have_both_scores(harbour: Bench) -> None:
    """Each passage has its cosine and its BM25 score, which is 0 without a common word."""
    passages = by_text(await harbour.ask("bridge tickets"))
    assert set(passages) == set(TEXTS)
    dense = by_text(await harbour.ask("bridge tickets", mode=Mode.VECTORS))
    sparse = by_text(await harbour.ask("bridge tickets", mode=Mode.TEXT))
    for text, passage in passages.items():
        assert passage.dense_score == pytest.approx(dense[text].dense_score)
        assert passage.sparse_score == pytest.approx(sparse[text].sparse_score if text in sparse else 0.0)
        assert passage.source is (Source.BOTH if text in sparse else Source.DENSE)


async def test_the_settings_of_an_index_apply_to_its_searches(harbour: Bench) -> None:
    """The settings of an index apply to its searches at once. The options of a query take precedence."""
    usual = await harbour.ask("bridge tickets")
    by_words = await harbour.ask("bridge tickets", dense_weight=0.0, expand=False)
    assert [passage.score for passage in by_words] != [passage.score for passage in usual]
    rebuilds = harbour.rebuilds()
    settings = IndexSettings(dense_weight=0.0, expand=False)
    await rebuilds.update(LOCAL, INDEX, settings, ("dense_weight", "expand"))
    assert await harbour.ask("bridge tickets") == by_words
    assert await harbour.ask("bridge tickets", dense_weight=0.5, expand=True) == usual
    await rebuilds.update(LOCAL, INDEX, IndexSettings(fusion=Fusion.RANKS), ("fusion", "dense_weight", "expand"))
    assert (await harbour.ask("ferry tickets"))[0].score == pytest.approx(2 / 61)


async def test_cosines_are_compared_above_their_models_floor(harbour: Bench) -> None:
    """Thresholds and shares use the part of a cosine above its model's floor."""
    plain = by_text(await harbour.ask("bridge tickets", mode=Mode.VECTORS))
    model = EmbeddingModel.of(harbour.embedder, cosine_floor=0.25)
    harbour.retrieval = harbour.retrieval_over(QueryVectors(EmbeddingModels([model])))
    raised = by_text(await harbour.ask("bridge tickets", mode=Mode.VECTORS))
    assert list(raised) == list(plain)
    for text, passage in raised.items():
        assert passage.dense_score == pytest.approx(((plain[text].dense_score or 0) - 0.25) / 0.75)
    above = [text for text, passage in raised.items() if passage.dense_score and passage.dense_score >= 0.1]
    assert 0 < len(above) < len(plain)
    assert set(by_text(await harbour.ask("bridge tickets", minimum_dense_score=0.1))) == set(above)
    mixed = by_text(await harbour.ask("bridge tickets", expand=False))
    best = max(passage.sparse_score or 0 for passage in mixed.values())
    most = max(passage.dense_score or 0 for passage in mixed.values())
    for passage in mixed.values():
        share = max(0, passage.dense_score or 0) / most
        assert passage.score == pytest.approx((share + (passage.sparse_score or 0) / best) / 2)


async def test_an_index_of_a_model_that_is_not_installed(harbour: Bench) -> None:
    """The error of a vector search of an index whose model is not installed says how to install the model."""
    spec = IndexSpec("", "notes", "multilingual-e5-small", 384)
    with pytest.raises(
        Conflict, match=r"search the index by text\. `make multilingual` builds 'multilingual-e5-small'"
    ):
        await QueryVectors(harbour.models).embed("ferry", [spec])


async def test_missing_scores_are_computed_for_both_searches(harbour: Bench) -> None:
    """A passage outside the candidates of one search gets that search's score too."""
    many = [f"filler word{number} and tickets" for number in range(120)]
    await harbour.put(Document("filler", generation=1), many)
    passages = await harbour.ask("tickets", top=100)
    assert len(passages) == 100
    assert {passage.source for passage in passages} >= {Source.BOTH}
    assert all(passage.dense_score is not None and passage.sparse_score is not None for passage in passages)
    everything = by_text(await harbour.ask("tickets", top=1000, mode=Mode.VECTORS))
    for passage in passages:
        assert passage.dense_score == pytest.approx(everything[passage.text].dense_score)


async def test_passages_have_both_scores_in_every_mode(harbour: Bench) -> None:
    """Each passage has the same cosine and BM25 score in all modes."""
    hybrid = by_text(await harbour.ask("ferry tickets"))
    assert len(hybrid) == len(TEXTS)
    for mode in (Mode.VECTORS, Mode.TEXT):
        for text, passage in by_text(await harbour.ask("ferry tickets", mode=mode)).items():
            assert passage.dense_score == pytest.approx(hybrid[text].dense_score, abs=1e-6)
            assert passage.sparse_score == pytest.approx(hybrid[text].sparse_score, abs=1e-6)


async def test_missing_scores_can_be_left_out(harbour: Bench) -> None:
    """With `skip_missing_scores`, a passage has only the scores of the searches that found it."""
    passages = by_text(await harbour.ask("bridge", skip_missing_scores=True))
    assert passages[TEXTS[2]].sparse_score is not None
    assert passages[TEXTS[3]].sparse_score is None
    assert passages[TEXTS[3]].source is Source.DENSE


async def test_modes_order_by_their_own_score(harbour: Bench) -> None:
    """Vectors order by cosine, text by BM25, and hybrid by the fused score.

    Text finds only passages with a query word.
    """
    for mode, own in ((Mode.VECTORS, "dense_score"), (Mode.TEXT, "sparse_score")):
        passages = await harbour.ask("ferry tickets", mode=mode)
        assert [passage.score for passage in passages] == [getattr(passage, own) for passage in passages]
        assert passages == sorted(passages, key=lambda passage: (-passage.score, passage.id))
        assert passages[0].text == TEXTS[1]
    assert {passage.source for passage in await harbour.ask("ferry", mode=Mode.TEXT)} == {Source.SPARSE}
    assert len(await harbour.ask("ferry", mode=Mode.TEXT)) == 2
    assert await harbour.ask("submarine", mode=Mode.TEXT) == []
    assert (await harbour.ask("ferry tickets"))[0].score == pytest.approx(1)
    assert (await harbour.ask("ferry tickets", fusion=Fusion.RANKS))[0].score == pytest.approx(2 / 61)


async def test_ties_are_ordered_by_id(bench: Bench) -> None:
    """Passages with equal scores are ordered by id."""
    for number in range(5):
        await bench.put(Document(f"d{number}", generation=1), ["the same text"])
    for mode in Mode:
        ids = [passage.id for passage in await bench.ask("same text", mode=mode)]
        assert ids == sorted(ids)
        assert len(ids) == 5


async def test_passages_have_document_and_citation(harbour: Bench) -> None:
    """Passages have the document, number, page, headings and citation of their chunk."""
    passage = (await harbour.ask("bridge tolls"))[0]
    assert (passage.index, passage.number, passage.page, passage.headings) == (INDEX, 2, 3, ("Part",))
    assert passage.document.citation(passage.page) == "harbour.pdf#page=3"
    assert passage.document.citation(0) == "harbour.pdf"
    assert (passage.document.metadata_json, passage.document.chunk_count) == (b'{"year": 2024}', 4)


async def test_top_limits_the_number_of_passages(harbour: Bench) -> None:
    """A search returns at most `top` passages, the best ones. Without `top` it returns the service's default
    number.
    """
    best = await harbour.ask("ferry tickets", top=1)
    assert [passage.text for passage in best] == [TEXTS[1]]
    await harbour.put(Document("more", generation=1), [f"ferry number {number}" for number in range(20)])
    assert len(await harbour.ask("ferry")) == 10


async def test_minimum_scores(harbour: Bench) -> None:
    """Passages below a minimum score are left out. The minimum cosine applies in every mode."""
    cosines = {
        passage.text: passage.dense_score for passage in await harbour.ask("ferry tickets", mode=Mode.VECTORS)
    }
    limit = cosines[TEXTS[0]]
    assert limit is not None
    for mode in Mode:
        passages = await harbour.ask("ferry tickets", mode=mode, minimum_dense_score=limit + 0.01)
        assert [passage.text for passage in passages] == [TEXTS[1]]
        assert passages[0].dense_score == pytest.approx(cosines[TEXTS[1]])
        again = await harbour.ask("ferry tickets", mode=mode, minimum_score=passages[0].score - 1e-9)
        assert [passage.text for passage in again] == [TEXTS[1]]
        assert await harbour.ask("ferry tickets", mode=mode, minimum_score=1000.0) == []


async def test_filter_is_applied_inside_the_search(harbour: Bench) -> None:
    """In each mode, a filtered search returns the best matching passages."""
    await harbour.put(Document("old", metadata_json=b'{"year": 1999}', generation=1), TEXTS)
    for mode in Mode:
        passages = await harbour.ask(
            "ferry tickets", mode=mode, top=1, filter=Filter(must=(Range("metadata.year", lt=2000),))
        )
        assert [passage.document.document_id for passage in passages] == ["old"]
        condition = Filter(must=(MatchAny("page", (1,)), MatchAny("metadata.year", (2024,))))
        passages = await harbour.ask("ferry tickets", mode=mode, filter=condition)
        assert [passage.text for passage in passages] == [TEXTS[0]]


async def test_several_indexes_are_searched_together(harbour: Bench) -> None:
    """Passages of several indexes are in one order and name their index. An index that is named twice is searched
    once.
    """
    await harbour.put(Document("e", generation=1), ["bridge tolls fall", "ferry"], index="other")
    both = (INDEX, "other", INDEX)
    for mode in Mode:
        passages = await harbour.ask("bridge tolls fall", indexes=both, mode=mode)
        assert passages[0].index == "other" or mode is not Mode.VECTORS
        assert {passage.index for passage in passages} == {INDEX, "other"}
        assert len({passage.id for passage in passages}) == len(passages)
        scores = [passage.score for passage in passages]
        assert scores == sorted(scores, reverse=True)
    hybrid = await harbour.ask("bridge tolls fall", indexes=both)
    assert all(passage.dense_score is not None and passage.sparse_score is not None for passage in hybrid)


WRONG: list[tuple[dict[str, Any], type[InvalidRequest], str]] = [
    ({"text": " \n\t\u2003"}, InvalidRequest, "query"),
    ({"text": ""}, InvalidRequest, "query"),
    ({"text": "x" * (MAX_QUERY_LENGTH + 1)}, PayloadTooLarge, "query"),
    ({"indexes": ()}, InvalidRequest, "indexes"),
    ({"indexes": ("a/b",)}, InvalidRequest, "index"),
    ({"top": 1001}, InvalidRequest, "top"),
]


async def test_wrong_queries_are_refused(harbour: Bench) -> None:
    """A wrong query is refused with the name of its field."""
    for query, error, field in WRONG:
        with pytest.raises(error) as caught:
            await harbour.ask(**{"text": "ferry", **query})
        assert caught.value.field == field


async def test_messages_that_clients_rely_on(harbour: Bench) -> None:
    """The messages about a blank query and an unknown index have exactly this text."""
    with pytest.raises(InvalidRequest, match=r"^Query string cannot be empty\.$"):
        await harbour.ask(" ")
    with pytest.raises(NotFound, match=r"^No such index: 'X' exists\.$") as caught:
        await harbour.ask("ferry", indexes=(INDEX, "X"))
    assert caught.value.resource == "X"


async def test_an_index_of_an_unknown_model(harbour: Bench) -> None:
    """An index of an unknown model is searched by words only. Searches that need vectors are refused, and the error
    names the index and the model.
    """
    same_name = HashingEmbedder(32)
    same_name.model = harbour.embedder.model
    for configured in (HashingEmbedder(32), same_name):
        other = harbour.retrieval_with(configured)
        for query in (
            Query((INDEX,), "ferry", Mode.VECTORS),
            Query((INDEX,), "ferry", Mode.HYBRID),
            Query((INDEX,), "ferry", Mode.TEXT, minimum_dense_score=0.1),
        ):
            with pytest.raises(Conflict, match=rf"'{INDEX}'.*'{harbour.embedder.model}'") as caught:
                await other.retrieve(LOCAL, query)
            assert caught.value.resource == INDEX
        found = (await other.retrieve(LOCAL, Query((INDEX,), "ferry", Mode.TEXT))).passages
        assert [passage.text for passage in found] == [
            passage.text for passage in await harbour.ask("ferry", mode=Mode.TEXT)
        ]
        assert all(passage.dense_score is None for passage in found)


async def test_indexes_of_several_models(harbour: Bench) -> None:
    """Each index is searched with vectors of its own model, and each model embeds the query once. The fused ranking
    uses ranks, and each passage has the cosine of a search of its index alone.
    """
    first, second = RecordingEmbedder(64), RecordingEmbedder(32)
    await harbour.put_with(second, Document("e", generation=1), ["bridge tolls fall", "ferry"], index="second")
    await harbour.put_with(second, Document("f", generation=1), ["the tolls"], index="third")
    first.embedded, second.embedded = [], []
    retrieval = harbour.retrieval_with(first, second)

    async def ask(mode: Mode, *indexes: str) -> list[Passage]:
        return list((await retrieval.retrieve(LOCAL, Query(indexes, "bridge tolls", mode))).passages)

    both = await ask(Mode.VECTORS, INDEX, "second", "third")
    assert (first.embedded, second.embedded) == (["bridge tolls"], ["bridge tolls"])
    assert both[0].score == both[1].score == pytest.approx(1 / 61)
    assert {both[0].index, both[1].index} == {INDEX, "second"}
    assert {passage.index for passage in both} == {INDEX, "second", "third"}
    alone = {
        passage.id: passage.dense_score
        for name in (INDEX, "second", "third")
        for passage in await ask(Mode.HYBRID, name)
    }
    for mode in Mode:
        for passage in await ask(mode, INDEX, "second", "third"):
            assert passage.dense_score == pytest.approx(alone[passage.id])
    hybrid = await ask(Mode.HYBRID, INDEX, "second")
    words = await ask(Mode.TEXT, INDEX, "second")
    assert hybrid[0].score == pytest.approx(1)
    assert hybrid[0].id == words[0].id


async def test_queries_get_the_prefix_of_queries(harbour: Bench) -> None:
    """The model gets the query with the prefix for queries."""
    embedder = RecordingEmbedder(64)
    models = EmbeddingModels([EmbeddingModel.of(embedder, "query: ", "passage: ")])
    vectors = QueryVectors(models)
    retrieval = harbour.retrieval_over(vectors)
    await retrieval.retrieve(LOCAL, Query((INDEX,), "ferry"))
    assert embedder.embedded == ["query: ferry"]


async def test_an_unavailable_model(harbour: Bench) -> None:
    """A vector search fails with the error of the model. A text search returns passages without cosines, and does
    not wait for a model that hangs.
    """
    embedder = RecordingEmbedder(64)
    retrieval = harbour.retrieval_with(embedder)
    embedder.failure = Unavailable("The embedding server of 'm' cannot be reached.")
    for mode in (Mode.VECTORS, Mode.HYBRID):
        with pytest.raises(Unavailable, match="'m'"):
            await retrieval.retrieve(LOCAL, Query((INDEX,), "ferry", mode))
    text = Query((INDEX,), "ferry", Mode.TEXT)
    found = (await retrieval.retrieve(LOCAL, text)).passages
    assert found[0].dense_score is None
    embedder.failure = None
    embedder.responds.clear()
    vectors = QueryVectors(EmbeddingModels([EmbeddingModel.of(embedder)]), cosine_timeout=0.05)
    retrieval = harbour.retrieval_over(vectors)
    assert (await retrieval.retrieve(LOCAL, text)).passages == found


async def test_steps_have_their_times(harbour: Bench) -> None:
    """The steps of a search are listed in order, each with its time."""
    for mode, names in (
        (Mode.HYBRID, ["embed", "dense", "sparse", "fuse"]),
        (Mode.VECTORS, ["embed", "dense", "fuse", "sparse"]),
        (Mode.TEXT, ["embed", "sparse", "fuse", "dense"]),
    ):
        retrieved = await harbour.retrieval.retrieve(LOCAL, Query((INDEX,), "ferry", mode))
        assert [step.name for step in retrieved.steps] == names
        assert all(step.milliseconds > 0 for step in retrieved.steps)
    lean = Query((INDEX,), "ferry", Mode.TEXT, skip_missing_scores=True)
    steps = (await harbour.retrieval.retrieve(LOCAL, lean)).steps
    assert [step.name for step in steps] == ["sparse", "fuse"]

from typing import Any

import httpx
import pytest
from causeway_testing.gateway.retrieval import FakeRetriever
from gateway.domain import Retrieval, SearchResults, Tuning
from gateway.domain.text_documents import Equals
from servicekit.deadline import Deadline
from servicekit.principal import Principal


async def test_passages_are_returned_with_their_scores(client: httpx.AsyncClient) -> None:
    """Passages are returned with their scores, their source and their number."""
    response = await client.post(
        "/retrieve", json={"index_name": "docs", "query": "the bridge", "max_node_count": 1}
    )
    assert response.status_code == 200
    answer = response.json()
    assert (answer["query"], answer["count"]) == ("the bridge", 1)
    [node] = answer["results"]
    assert (node["doc_id"], node["node_id"], node["source"]) == ("d2", "p2", "both")
    assert (node["score"], node["dense_score"], node["sparse_score"]) == (1 / 3, 0.5, 2.0)
    assert node["text"] == "The bridge opens at noon."


class Recording(FakeRetriever):
    """A retriever that finds nothing and records the conditions and the number of passages."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> SearchResults:
        self.calls.append((retrieval.indexes, retrieval.metadata, top))
        return SearchResults()


@pytest.fixture
def recording(fakes: Any) -> Recording:
    fakes.retriever = Recording()
    return fakes.retriever  # type: ignore[no-any-return]  # the fixture set it


async def test_the_conditions_reach_the_retriever(recording: Recording, client: httpx.AsyncClient) -> None:
    """The number of passages and the conditions reach the retriever. The defaults are five and no condition."""
    await client.post("/retrieve", json={"index_name": "docs", "query": "q", "metadata_filter": {"a": "b"}})
    answer = await client.post("/retrieve", json={"index_name": "docs", "query": "q", "max_node_count": 7})
    assert answer.json() == {"query": "q", "results": [], "count": 0}
    assert recording.calls == [(("docs",), (Equals("a", '"b"'),), 5), (("docs",), (), 7)]


async def test_a_request_can_choose_the_mode(
    monkeypatch: pytest.MonkeyPatch, recording: Recording, client: httpx.AsyncClient
) -> None:
    """A request may choose the mode of retrieval and a reranker. Another mode is refused."""
    retrievals: list[Retrieval] = []

    async def retrieve(_: Any, retrieval: Retrieval, *__: Any) -> SearchResults:
        retrievals.append(retrieval)
        return SearchResults()

    monkeypatch.setattr(recording, "retrieve", retrieve)
    search = {"index_name": "docs", "query": "q"}
    for fields in ({}, {"retrieval_mode": "text", "semantic_ranker": True}):
        assert (await client.post("/retrieve", json={**search, **fields})).status_code == 200
    assert [(retrieval.mode.value, retrieval.semantic_ranker) for retrieval in retrievals] == [
        ("hybrid", False),
        ("text", True),
    ]
    wrong = await client.post("/retrieve", json={**search, "retrieval_mode": "best"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "retrieval_mode")


async def test_invalid_requests_are_refused(client: httpx.AsyncClient) -> None:
    """The error of an invalid request has RAGEngine's format."""
    blank = await client.post("/retrieve", json={"index_name": "docs", "query": " "})
    assert (blank.status_code, blank.json()["detail"]) == (400, "Query string cannot be empty.")
    count = await client.post("/retrieve", json={"index_name": "docs", "query": "q", "max_node_count": 301})
    assert (count.status_code, count.json()["error"]["param"]) == (400, "max_node_count")


async def test_a_request_can_choose_the_tuning(
    monkeypatch: pytest.MonkeyPatch, recording: Recording, client: httpx.AsyncClient
) -> None:
    """A request may choose the fusion, the weight and the expansion of its search. Invalid values are refused."""
    tunings: list[Tuning] = []

    async def retrieve(_: Any, retrieval: Retrieval, *__: Any) -> SearchResults:
        tunings.append(retrieval.tuning)
        return SearchResults()

    monkeypatch.setattr(recording, "retrieve", retrieve)
    search = {"index_name": "docs", "query": "q"}
    await client.post("/retrieve", json=search | {"fusion": "ranks", "dense_weight": 0, "expand": False})
    await client.post("/retrieve", json=search | {"fusion": None, "dense_weight": None, "expand": None})
    assert tunings == [Tuning("ranks", 0, expand=False), Tuning()]
    for wrong in ({"fusion": "x"}, {"dense_weight": 2}, {"dense_weight": "1"}, {"expand": "yes"}):
        assert (await client.post("/retrieve", json=search | wrong)).status_code == 400
    assert len(tunings) == 2

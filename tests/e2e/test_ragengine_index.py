"""RAGEngine's API except the chat, called with OpenAI's client."""

import hashlib
import math
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

TEXTS: list[dict[str, Any]] = [
    {"text": "The pivot bearing of the swing bridge is renewed every nine years.", "metadata": {"topic": "bridge"}},
    {
        "text": "The ferry to Kelsay leaves at nine.",
        "doc_id": "ferry",
        "metadata": {"topic": "ferry", "year": 2024},
    },
    {"text": "The lighthouse keeper feeds eleven cats.", "doc_id": "cats", "metadata": None},
]

ELEVEN_CATS = [46439, 1055, 19987]
"""The token ids of "Eleven cats" in the encoding cl100k_base."""


@pytest.fixture
def client(base_url: str, api_key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as openai_client:
        yield openai_client


@pytest.fixture
def v1(base_url: str, api_key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0) as openai_client:
        yield openai_client


@pytest.fixture
def index(client: OpenAI) -> Iterator[str]:
    """Create an index with three documents."""
    name = f"e2e-{uuid.uuid4().hex[:12]}"
    post(client, "/index", index_name=name, documents=TEXTS)
    yield name
    if name in get(client, "/indexes"):
        client.delete(f"/indexes/{name}", cast_to=object)


def post(client: OpenAI, path: str, **body: Any) -> Any:
    return client.post(path, body=body, cast_to=object)


def get(client: OpenAI, path: str, **query: Any) -> Any:
    return client.get(path, options={"params": query}, cast_to=object)


def cosine(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def ids(listed: list[dict[str, Any]]) -> list[str]:
    return [each["doc_id"] for each in listed]


def test_documents_are_added_and_found(client: OpenAI) -> None:
    """The response has the added documents in their order with ids. A search finds them immediately. A second
    request creates no duplicates.
    """
    name = f"e2e-{uuid.uuid4().hex[:12]}"
    added = post(client, "/index", index_name=name, documents=TEXTS)
    digest = hashlib.sha256(TEXTS[0]["text"].encode()).hexdigest()
    assert ids(added) == [digest, "ferry", "cats"]
    assert (added[0]["hash_value"], added[0]["is_truncated"], added[2]["metadata"]) == (digest, False, {})
    assert name in get(client, "/indexes")
    assert ids(post(client, "/index", index_name=name, documents=TEXTS)) == ids(added)
    page = get(client, f"/indexes/{name}/documents")
    assert (page["count"], page["total_items"]) == (3, 3)
    found = post(client, "/retrieve", index_name=name, query="When is the bearing renewed?", max_node_count=2)
    assert found["count"] == 2
    best = found["results"][0]
    assert (best["doc_id"], best["source"]) == (digest, "both")
    assert best["dense_score"] > 0.3
    assert best["sparse_score"] > 0
    assert best["metadata"]["topic"] == "bridge"
    client.delete(f"/indexes/{name}", cast_to=object)


def test_a_list_has_whole_documents(client: OpenAI, index: str) -> None:
    """A list has whole documents, not passages. Their text is unchanged, and is cut at the requested length."""
    text = "\n\n".join(f"  Part {n}. The lamp of buoy {n} flashes every {n + 2} seconds.  " for n in range(300))
    post(client, "/index", index_name=index, documents=[{"text": text, "doc_id": "a long one"}])
    page = get(client, f"/indexes/{index}/documents", limit=1, max_text_length=1_000_000)
    assert (page["count"], page["total_items"]) == (1, 4)
    assert (page["documents"][0]["text"], page["documents"][0]["is_truncated"]) == (text, False)
    short = get(client, f"/indexes/{index}/documents", limit=1, max_text_length=5)["documents"][0]
    assert (short["text"], short["is_truncated"]) == (text[:5], True)
    rest = get(client, f"/indexes/{index}/documents", offset=1, limit=100)
    assert set(ids(rest["documents"])) == set(ids(page["documents"])) ^ set(
        ids(get(client, f"/indexes/{index}/documents")["documents"])
    )


def test_documents_are_filtered_by_their_metadata(client: OpenAI, index: str) -> None:
    """The filter of a list or a search matches documents that have all given metadata with the same types."""
    path = f"/indexes/{index}/documents"
    assert ids(get(client, path, metadata_filter='{"topic":"ferry","year":2024}')["documents"]) == ["ferry"]
    assert get(client, path, metadata_filter='{"year":"2024"}')["total_items"] == 0
    found = post(client, "/retrieve", index_name=index, query="bridge", metadata_filter={"topic": "ferry"})
    assert ids(found["results"]) == ["ferry"]


def test_documents_are_updated(client: OpenAI, index: str) -> None:
    """An update replaces the text or only the metadata. The response lists unknown ids, which create no
    documents.
    """
    documents = [
        {"doc_id": "cats", "text": "The lighthouse keeper feeds twelve dogs."},
        {"doc_id": "ferry", "text": TEXTS[1]["text"], "metadata": {"topic": "harbour"}},
        {"doc_id": "unknown", "text": "Nothing."},
    ]
    updated = post(client, f"/indexes/{index}/documents", documents=documents)
    assert {group: ids(listed) for group, listed in updated.items()} == {
        "updated_documents": ["cats", "ferry"],
        "unchanged_documents": [],
        "not_found_documents": ["unknown"],
    }
    again = post(client, f"/indexes/{index}/documents", documents=documents[:2])
    assert ids(again["unchanged_documents"]) == ["cats", "ferry"]
    found = post(client, "/retrieve", index_name=index, query="How many cats does the keeper feed?")
    texts = [node["text"] for node in found["results"]]
    assert "The lighthouse keeper feeds twelve dogs." in texts
    assert not any("eleven" in text for text in texts)
    listed = get(client, f"/indexes/{index}/documents", metadata_filter='{"topic":"harbour"}')["documents"]
    assert (ids(listed), listed[0]["text"]) == (["ferry"], TEXTS[1]["text"])


def test_documents_and_indexes_are_deleted(client: OpenAI, index: str) -> None:
    """Deleted documents and indexes are not listed. The response lists unknown ids."""
    deleted = post(client, f"/indexes/{index}/documents/delete", doc_ids=["cats", "unknown"])
    assert deleted == {"deleted_doc_ids": ["cats"], "not_found_doc_ids": ["unknown"]}
    assert "cats" not in ids(get(client, f"/indexes/{index}/documents")["documents"])
    gone: Any = client.delete(f"/indexes/{index}", cast_to=object)
    assert gone == {"message": f"Successfully deleted index {index}."}
    assert index not in get(client, "/indexes")
    with pytest.raises(openai.NotFoundError, match=f"No such index: '{index}' exists"):
        get(client, f"/indexes/{index}/documents")


def test_snapshots(client: OpenAI, index: str) -> None:
    """An index is restored from its snapshot."""
    path = "e2e"
    written: Any = client.post(f"/persist/{index}", options={"params": {"path": path}}, cast_to=object)
    assert written == {"message": f"Successfully persisted index {index} to {path}/{index}."}
    with pytest.raises(openai.ConflictError):
        client.post(f"/load/{index}", options={"params": {"path": path}}, cast_to=object)
    client.delete(f"/indexes/{index}", cast_to=object)
    loaded: Any = client.post(f"/load/{index}", options={"params": {"path": path}}, cast_to=object)
    assert loaded == {"message": f"Successfully loaded index {index} from {path}/{index}."}
    assert get(client, f"/indexes/{index}/documents")["total_items"] == 3
    found = post(client, "/retrieve", index_name=index, query="When does the ferry leave?", max_node_count=1)
    assert ids(found["results"]) == ["ferry"]
    with pytest.raises(openai.NotFoundError, match=f"Path does not exist: nowhere/{index}"):
        client.post(f"/load/{index}", options={"params": {"path": "nowhere", "overwrite": True}}, cast_to=object)
    with pytest.raises(openai.BadRequestError):
        client.post(f"/persist/{index}", options={"params": {"path": "../out"}}, cast_to=object)


def test_embeddings(v1: OpenAI) -> None:
    """Vectors have length 1. They do not depend on the encoding or on the other texts of the request. Invalid
    requests are refused.
    """
    model = "all-minilm-l6-v2"
    texts = ["The ferry leaves at nine.", "Departure of the boat", "Eleven cats"]
    embedded = v1.embeddings.create(model=model, input=texts)
    vectors = [each.embedding for each in embedded.data]
    assert [len(vector) for vector in vectors] == [384] * 3
    assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-3) for vector in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert embedded.usage.total_tokens > 10
    alone = v1.embeddings.create(model=model, input=texts[0], encoding_format="float", dimensions=384)
    assert alone.data[0].embedding == pytest.approx(vectors[0], abs=1e-6)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        v1.embeddings.create(model=model, input="x", dimensions=256)
    in_tokens = v1.embeddings.create(model=model, input=ELEVEN_CATS, encoding_format="float")
    assert in_tokens.data[0].embedding == pytest.approx(vectors[2], abs=1e-6)
    with pytest.raises(openai.BadRequestError, match="token"):
        v1.embeddings.create(model=model, input=[1, 2, 10**6])
    with pytest.raises(openai.NotFoundError):
        v1.embeddings.create(model="no-such-model", input="x")


def test_models(v1: OpenAI) -> None:
    """The list has the models for chats. Models for embeddings can be retrieved by their ids."""
    models = {model.id: model for model in v1.models.list()}
    assert "extractive" in models
    assert "all-minilm-l6-v2" not in models
    assert v1.models.retrieve("all-minilm-l6-v2").id == "all-minilm-l6-v2"
    one = v1.models.retrieve("extractive")
    assert one.model_extra is not None
    assert one.model_extra["max_model_len"] > 0
    with pytest.raises(openai.NotFoundError):
        v1.models.retrieve("no/such/model")


def test_a_chat_over_the_index(v1: OpenAI, index: str) -> None:
    """A chat is answered from an added document."""
    answer = v1.chat.completions.create(
        model="extractive",
        messages=[{"role": "user", "content": "How often is the pivot bearing of the bridge renewed?"}],
        extra_body={"index_name": index},
    )
    assert "nine years" in (answer.choices[0].message.content or "")


INVALID_REQUESTS: list[tuple[str, str, Any, int]] = [
    ("POST", "/index", {"index_name": "a/b", "documents": [{"text": "a"}]}, 400),
    ("POST", "/index", {"index_name": "{index}", "documents": [{"text": "fine"}, {"text": ""}]}, 400),
    ("POST", "/index", {"index_name": "{index}", "documents": [{"text": "fine"}, {"text": "a\0"}]}, 400),
    (
        "POST",
        "/index",
        {"index_name": "{index}", "documents": [{"doc_id": "x", "text": "a"}, {"doc_id": "x", "text": "b"}]},
        400,
    ),
    ("POST", "/index", {"index_name": "{index}", "documents": [{"text": "a", "metadata": [1]}]}, 400),
    ("POST", "/index", {"index_name": "{index}", "documents": [{"text": "a", "metadata": {"n": 10**40}}]}, 400),
    ("POST", "/index", {"index_name": "{index}", "documents": [{"text": "a", "doc_id": 7}]}, 400),
    ("POST", "/index", b'{"index_name":"x","documents":[{"text":"\\ud800 half"}]}', 400),
    ("POST", "/index", b"\xff\xfe", 400),
    ("POST", "/retrieve", {"index_name": "{index}", "query": " "}, 400),
    ("POST", "/retrieve", {"index_name": "{index}", "query": "q", "max_node_count": "5"}, 400),
    ("POST", "/retrieve", {"index_name": "{index}", "query": "q", "max_node_count": -1}, 400),
    ("POST", "/retrieve", {"index_name": "{index}", "query": "q", "metadata_filter": {"a": {}}}, 400),
    ("POST", "/retrieve", {"index_name": "nowhere", "query": "q"}, 404),
    ("POST", "/indexes/nowhere/documents", {"documents": [{"doc_id": "a", "text": "a"}]}, 404),
    ("POST", "/indexes/{index}/documents", {"documents": [{"text": "a"}]}, 400),
    ("GET", "/indexes/{index}/documents?limit=0", None, 400),
    ("GET", "/indexes/{index}/documents?offset=" + "9" * 30, None, 400),
    ("GET", "/indexes/{index}/documents?metadata_filter=%7B", None, 400),
    ("GET", "/indexes/a%2Fb/documents", None, 400),
    ("POST", "/persist/{index}?path=/etc/passwd", None, 400),
    ("POST", "/persist/{index}?path=%2e%2e%2fx", None, 400),
    ("POST", "/persist/{index}?path=a%00b", None, 400),
    ("POST", "/load/{index}?path=..%2F..%2Fx&overwrite=true", None, 400),
    ("POST", "/v1/embeddings", {"input": [" "]}, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), INVALID_REQUESTS)
def test_invalid_requests_change_nothing(
    http: httpx.Client, index: str, method: str, path: str, body: Any, status: int
) -> None:
    """An invalid request gets a 4xx with the reason, and the index stays unchanged."""
    if isinstance(body, dict) and "index_name" in body:
        body = body | {"index_name": body["index_name"].replace("{index}", index)}
    before = http.get(f"/indexes/{index}/documents").json()
    content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
    headers = {"content-type": "application/json"} if isinstance(body, bytes) else {}
    response = http.request(method, path.replace("{index}", index), headers=headers, **content)
    assert response.status_code == status, response.text
    assert response.json()["detail"]
    assert http.get(f"/indexes/{index}/documents").json() == before


def test_health_and_metrics(http: httpx.Client, index: str) -> None:
    """The responses have RAGEngine's format. The metrics count each request by its outcome."""
    assert http.get("/health").json() == {"status": "Healthy", "detail": None}

    def count(status: str) -> float:
        name = f'rag_indexes_retrieve_requests_total{{status="{status}"}} '
        return next(
            float(line.removeprefix(name))
            for line in http.get("/metrics").text.splitlines()
            if line.startswith(name)
        )

    successes, failures = count("success"), count("failure")
    http.post("/retrieve", json={"index_name": index, "query": "ferry"})
    http.post("/retrieve", json={"index_name": index, "query": ""})
    assert (count("success"), count("failure")) == (successes + 1, failures + 1)


def test_the_openapi_document_has_every_route(http: httpx.Client) -> None:
    """The OpenAPI document has every route of RAGEngine's clients with a summary."""
    paths = http.get("/openapi.json").json()["paths"]
    for path, methods in {
        "/health": {"get"},
        "/metrics": {"get"},
        "/index": {"post"},
        "/indexes": {"get"},
        "/indexes/{index}": {"delete"},
        "/indexes/{index}/documents": {"get", "post"},
        "/indexes/{index}/documents/delete": {"post"},
        "/persist/{index}": {"post"},
        "/load/{index}": {"post"},
        "/retrieve": {"post"},
        "/v1/models": {"get"},
        "/v1/embeddings": {"post"},
        "/v1/chat/completions": {"post"},
    }.items():
        assert methods <= set(paths[path]), path
        for method in methods:
            assert paths[path][method]["summary"]
            assert "200" in paths[path][method]["responses"]

from typing import Any

import httpx
import pytest
from gateway.domain.text_documents import ListedDocument


def listed(number: int, **metadata: Any) -> ListedDocument:
    raw = httpx.Request("POST", "http://x", json=metadata).content if metadata else b"{}"
    return ListedDocument(f"d{number}", f"Text {number} " * 200, raw, f"{number:064x}", is_truncated=False)


@pytest.fixture(autouse=True)
def documents(fakes: Any) -> None:
    fakes.indexes.indexes["docs"] = {f"d{n}": listed(n, n=n, odd=bool(n % 2)) for n in range(1, 16)}


async def test_indexes_are_listed(client: httpx.AsyncClient) -> None:
    """The names of the indexes are listed in order."""
    assert (await client.get("/indexes")).json() == ["docs", "empty"]


async def test_documents_are_listed(client: httpx.AsyncClient) -> None:
    """A page has ten documents with 1000 characters each by default, and the total number."""
    page = (await client.get("/indexes/docs/documents")).json()
    assert (page["count"], page["total_items"]) == (10, 15)
    first = page["documents"][0]
    assert list(first) == ["doc_id", "text", "metadata", "hash_value", "is_truncated"]
    assert (len(first["text"]), first["is_truncated"], first["metadata"]["n"]) == (1000, True, 1)
    parameters: dict[str, Any] = {"limit": 100, "offset": 14, "max_text_length": 3}
    last = (await client.get("/indexes/docs/documents", params=parameters)).json()
    assert [document["text"] for document in last["documents"]] == ["Tex"]
    assert (await client.get("/indexes/docs/documents?offset=15")).json() == {
        "documents": [],
        "count": 0,
        "total_items": 15,
    }


async def test_documents_are_filtered_by_metadata(client: httpx.AsyncClient) -> None:
    """A document is listed if it meets all conditions, and the types of the values count."""
    path = "/indexes/docs/documents"
    page = (await client.get(path, params={"metadata_filter": '{"odd":true,"n":3}'})).json()
    assert [document["doc_id"] for document in page["documents"]] == ["d3"]
    assert (await client.get(path, params={"metadata_filter": '{"n":"3"}'})).json()["total_items"] == 0


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=101",
        "limit=ten",
        "limit=1.5",
        "limit=" + "9" * 400,
        "offset=-1",
        "offset=9007199254740993",
        "offset=" + "9" * 5000,
        "max_text_length=0",
        "max_text_length=1000001",
        "limit=100&max_text_length=10001",
        "metadata_filter={",
        "metadata_filter=[]",
        "metadata_filter=%00",
        'metadata_filter={"a":null}',
        'metadata_filter={"a":1e999}',
    ],
)
async def test_an_invalid_list_parameter_is_refused(client: httpx.AsyncClient, query: str) -> None:
    """An invalid parameter of the list is refused with 400, and the error names the parameter."""
    response = await client.get(f"/indexes/docs/documents?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json()["detail"] or "max_text_length" in response.json()["detail"]


async def test_documents_are_removed_by_their_ids(fakes: Any, client: httpx.AsyncClient) -> None:
    """The response lists the removed ids and the unknown ids, and the passages are removed."""
    response = await client.post("/indexes/docs/documents/delete", json={"doc_ids": ["d1", "nope", "d1"]})
    assert response.status_code == 200
    assert response.json() == {"deleted_doc_ids": ["d1"], "not_found_doc_ids": ["nope"]}
    assert [passage.document_id for passage in fakes.retriever.indexes["docs"]] == ["d2"]


async def test_invalid_removals_are_refused(fakes: Any, client: httpx.AsyncClient) -> None:
    """A removal with invalid ids, an invalid name or an unknown index is refused, and nothing is removed."""
    bodies: tuple[dict[str, Any], ...] = ({}, {"doc_ids": []}, {"doc_ids": "d1"}, {"doc_ids": [1]})
    for body in bodies:
        response = await client.post("/indexes/docs/documents/delete", json=body)
        assert response.status_code == 400
        assert "doc_ids" in response.json()["detail"]
    unknown = await client.post("/indexes/nowhere/documents/delete", json={"doc_ids": ["d1"]})
    assert unknown.status_code == 404
    assert unknown.json()["detail"] == "No such index: 'nowhere' exists."
    assert (await client.post("/indexes/.hidden/documents/delete", json={"doc_ids": ["d1"]})).status_code == 400
    assert len(fakes.retriever.indexes["docs"]) == 2


async def test_an_index_is_deleted(client: httpx.AsyncClient) -> None:
    """A deleted index no longer exists."""
    response = await client.delete("/indexes/docs")
    assert response.json() == {"message": "Successfully deleted index docs."}
    assert (await client.delete("/indexes/docs")).status_code == 404
    assert (await client.get("/indexes")).json() == ["empty"]


async def test_snapshots_are_written_and_loaded(client: httpx.AsyncClient, fakes: Any) -> None:
    """A snapshot is written below the path under the index's name, and loaded from there."""
    written = await client.post("/persist/docs?path=a/b")
    assert written.json() == {"message": "Successfully persisted index docs to a/b/docs."}
    assert (await client.post("/persist/docs")).json()["message"].endswith("index docs to docs.")
    exists = await client.post("/load/docs?path=a/b")
    assert exists.status_code == 409
    await client.delete("/indexes/docs")
    loaded = await client.post("/load/docs?path=a/b")
    assert loaded.json() == {"message": "Successfully loaded index docs from a/b/docs."}
    assert len(fakes.indexes.indexes["docs"]) == 15
    assert (await client.post("/load/docs?path=a/b&overwrite=true")).status_code == 200
    missing = await client.post("/load/other?path=c")
    assert (missing.status_code, missing.json()["detail"]) == (404, "Path does not exist: c/other")
    # RAGEngine's own client uses the same directory for all indexes.
    await client.post("/persist/docs?path=storage")
    await client.post("/persist/empty?path=storage")
    await client.post("/load/docs?path=storage&overwrite=true")
    assert len(fakes.indexes.indexes["docs"]) == 15


async def test_snapshots_are_listed_and_deleted(client: httpx.AsyncClient, fakes: Any) -> None:
    """Snapshots are listed and deleted by their paths. An unknown path gets the status 404, an invalid path 400."""
    await client.post("/persist/docs?path=a/b")
    [listed] = (await client.get("/snapshots")).json()["snapshots"]
    assert (listed["path"], listed["index"], listed["documents"]) == ("a/b/docs", "docs", 15)
    assert listed.keys() == {"path", "index", "documents", "chunks", "size_bytes", "created_at"}
    missing = await client.delete("/snapshots/a/b")
    assert (missing.status_code, missing.json()["detail"]) == (404, "There is no snapshot at 'a/b'.")
    assert (await client.delete("/snapshots/a%00b")).status_code == 400
    assert (await client.delete("/snapshots/a/%2e%2e/%2e%2e/x")).status_code == 400
    gone = await client.delete("/snapshots/a/b/docs")
    assert gone.json() == {"message": "Successfully deleted snapshot a/b/docs."}
    assert fakes.indexes.snapshots == {}


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../b", "%2e%2e%2fx", "a%00b", "x" * 1025, "..%5c..%5cx%00"]
)
async def test_paths_outside_the_folder_are_refused(client: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """A path outside the folder of snapshots is refused with 400, and nothing is written or read."""
    for route in ("/persist/docs", "/load/other"):
        assert (await client.post(f"{route}?path={path}")).status_code == 400
    assert fakes.indexes.snapshots == {}
    assert set(fakes.indexes.indexes) == {"docs", "empty"}


@pytest.mark.parametrize("name", ["a%2Fb", "..%2Fa", "%2e%2e", ".a", "a%00", "a%20b", "%ED%A0%80", "ä", "a" * 129])
async def test_invalid_names_are_refused(client: httpx.AsyncClient, name: str) -> None:
    """An invalid index name is refused with a 4xx status on every route."""
    body = {"documents": [{"doc_id": "a", "text": "b"}]}
    answers = [
        await client.get(f"/indexes/{name}/documents"),
        await client.post(f"/indexes/{name}/documents", json=body),
        await client.post(f"/indexes/{name}/documents/delete", json={"doc_ids": ["a"]}),
        await client.delete(f"/indexes/{name}"),
        await client.post(f"/persist/{name}"),
        await client.post(f"/load/{name}"),
    ]
    assert {answer.status_code for answer in answers} <= {400, 404, 405}
    assert all(answer.json()["detail"] for answer in answers)


async def test_an_unknown_index_is_not_found(client: httpx.AsyncClient) -> None:
    """Each route returns the same 404 for an unknown index."""
    body = {"documents": [{"doc_id": "a", "text": "b"}]}
    for answer in (
        await client.get("/indexes/nope/documents"),
        await client.post("/indexes/nope/documents", json=body),
        await client.post("/indexes/nope/documents/delete", json={"doc_ids": ["a"]}),
        await client.delete("/indexes/nope"),
        await client.post("/persist/nope?path=x"),
        await client.post("/retrieve", json={"index_name": "nope", "query": "q"}),
    ):
        assert answer.status_code == 404
        assert answer.json()["detail"] == "No such index: 'nope' exists."
        assert answer.json()["error"]["param"] in ("index", "index_name")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/indexes/a%2Fb/documents"),
        ("GET", "/indexes/a/b/documents"),
        ("POST", "/indexes/a%2fb/documents/delete"),
        ("DELETE", "/indexes/a%2Fb"),
        ("GET", "/indexes/a%2Fb/rebuild"),
        ("POST", "/persist/a%2Fb"),
        ("POST", "/load/a/b"),
    ],
)
async def test_a_slash_in_a_name_is_refused(client: httpx.AsyncClient, method: str, path: str) -> None:
    """A name with a slash is refused with 400, and the error names the index."""
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "index")
    assert "'a/b'" in answer.json()["detail"]


async def test_an_unknown_path_is_not_found(client: httpx.AsyncClient) -> None:
    """An unknown path gets the status 404."""
    for path in ("/indexes/docs/nothing", "/indexes/docs/documents/x", "/other/a%2Fb"):
        assert (await client.get(path)).status_code == 404

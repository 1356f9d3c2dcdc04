from typing import Any

import httpx


async def test_documents_are_removed_by_their_ids(fakes: Any, client: httpx.AsyncClient) -> None:
    """What was there is named, what was not is named, and nothing of the removed is found any more."""
    response = await client.post("/indexes/docs/documents/delete", json={"doc_ids": ["d1", "nope", "d1"]})
    assert response.status_code == 200
    assert response.json() == {"deleted_doc_ids": ["d1"], "not_found_doc_ids": ["nope"]}
    assert [passage.document_id for passage in fakes.retriever.indexes["docs"]] == ["d2"]


async def test_bad_removals_are_refused(fakes: Any, client: httpx.AsyncClient) -> None:
    """No ids, ids that are none, an unknown index, a name that is none: nothing is removed."""
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

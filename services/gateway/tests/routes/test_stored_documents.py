"""The routes of one document, over fakes."""

from typing import Any

import httpx
import pytest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import StoredDocument

PATH = "/indexes/docs/documents"


async def test_passages_of_a_document(client: httpx.AsyncClient) -> None:
    """In order, each with how it is cited; the document as the list of documents has it."""
    page = (await client.get(f"{PATH}/d1/passages")).json()
    assert page["total"] == 1
    assert page["passages"] == [
        {
            "id": "p1",
            "number": 0,
            "page": 1,
            "headings": [],
            "text": "The ferry leaves at nine.",
            "sourcepage": "guide-1.pdf#page=1",
        }
    ]
    assert (page["document"]["document_id"], page["document"]["oids"]) == ("d1", [])
    assert (await client.get(f"{PATH}/d1/passages?offset=1")).json()["passages"] == []


async def test_ids_may_hold_slashes(client: httpx.AsyncClient, fakes: Any) -> None:
    """Who brings documents as text chooses their ids."""
    stored = StoredDocument("a/b c/passages", "n", "text/plain", "a" * 64, 1, 0.0, oids=("ann",))
    fakes.retriever.documents["docs"] = [FakeDocument(stored)]
    page = (await client.get(f"{PATH}/a%2Fb%20c%2Fpassages/passages")).json()
    assert (page["document"]["document_id"], page["document"]["oids"], page["total"]) == (
        "a/b c/passages",
        ["ann"],
        0,
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{PATH}/none/passages", 404),
        ("/indexes/nowhere/documents/d1/passages", 404),
        ("/indexes/a%20b/documents/d1/passages", 400),
        (f"{PATH}/d1/passages?limit=0", 400),
        (f"{PATH}/d1/passages?limit=101", 400),
        (f"{PATH}/d1/passages?offset=-1", 400),
    ],
)
async def test_what_cannot_be_listed(client: httpx.AsyncClient, path: str, status: int) -> None:
    """A document or an index that is not there, and pages that no document has."""
    assert (await client.get(path)).status_code == status

"""The routes of one document, over fakes."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.retrieval import FakeDocument
from gateway.domain.documents import AccessChange, StoredDocument

PATH = "/indexes/docs/documents"


async def test_passages_of_a_document_are_listed(client: httpx.AsyncClient, fakes: Any) -> None:
    """Passages of a document are listed in order with their citations, together with the document.

    A request can choose a part of the list.
    """
    passages = fakes.retriever.indexes["docs"]
    passages.append(replace(passages[0], id="p0", text="It returns at ten."))
    page = (await client.get(f"{PATH}/d1/passages")).json()
    assert page["total"] == 2
    first, second = page["passages"]
    assert (second["id"], second["number"], second["text"]) == ("p0", 1, "It returns at ten.")
    assert [first] == [
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
    for part, expected in (("offset=1", [second]), ("limit=1", [first]), ("offset=2", [])):
        listed = (await client.get(f"{PATH}/d1/passages?{part}")).json()
        assert (listed["passages"], listed["total"]) == (expected, 2)


async def test_ids_may_have_slashes(client: httpx.AsyncClient, fakes: Any) -> None:
    """The id of a document may have slashes."""
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
async def test_invalid_lists_are_refused(client: httpx.AsyncClient, path: str, status: int) -> None:
    """An unknown document or index gets the status 404, and an invalid page or name 400."""
    assert (await client.get(path)).status_code == status


async def test_the_access_list_of_a_document_is_changed(client: httpx.AsyncClient, fakes: Any) -> None:
    """A job changes the access list of a document. Repeated names count once."""
    stored = StoredDocument("a/b", "b.md", "text/plain", "a" * 64, 1, 0.0)
    fakes.retriever.documents["docs"] = [FakeDocument(stored)]
    access = {"oids": ["ann", "bob", "ann"], "groups": []}
    response = await client.put(f"{PATH}/a%2Fb/access", json=access)
    job = response.json()
    assert (response.status_code, job["state"], job["sourcefile"], job["document_id"]) == (
        202,
        "queued",
        "b.md",
        "a/b",
    )
    assert fakes.ingest.changes == [AccessChange("docs", "a/b", "b.md", ("ann", "bob"), ())]
    assert (await client.get(f"/jobs/{job['id']}")).json() == job


@pytest.mark.parametrize(
    ("document", "access", "status"),
    [
        ("none", {"oids": [], "groups": []}, 404),
        ("hidden", {"oids": [], "groups": []}, 202),
        ("hidden", {"oids": []}, 400),
        ("hidden", {}, 400),
        ("hidden", {"oids": [], "groups": [], "more": []}, 400),
        ("hidden", {"oids": "ann", "groups": []}, 400),
        ("hidden", {"oids": [" "], "groups": []}, 400),
        ("hidden", {"oids": [1], "groups": []}, 400),
        ("hidden", {"oids": ["a" * 513], "groups": []}, 400),
        ("hidden", {"oids": [], "groups": ["g"] * 1001}, 400),
        ("hidden", [], 400),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_invalid_access_lists_are_refused(
    client: httpx.AsyncClient, fakes: Any, document: str, access: Any, status: int
) -> None:
    """An invalid access list or an unknown document is refused, and nothing is queued.

    Both lists are required, because a missing list would give all callers access. Two empty lists are valid.
    """
    stored = StoredDocument("hidden", "b.md", "text/plain", "a" * 64, 1, 0.0)
    fakes.retriever.documents["docs"] = [FakeDocument(stored, ("ann",))]
    response = await client.put(f"{PATH}/{document}/access", json=access)
    assert (response.status_code, len(fakes.ingest.changes)) == (status, int(status == 202))

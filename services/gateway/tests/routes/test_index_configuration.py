"""Indexes with their own settings, and rebuilds."""

from typing import Any

import httpx
import pytest


async def test_an_index_is_created_with_settings(client: httpx.AsyncClient) -> None:
    """A new index has the settings of the request. A second request for the same index is refused with 409."""
    settings = {
        "index_name": "notes",
        "embedding": "other-embedder",
        "chunk_tokens": 128,
        "chunk_overlap": 16,
        "fusion": "ranks",
        "dense_weight": 0.25,
        "expand": False,
        "language": "de",
        "ocr": "off",
    }
    made = await client.post("/indexes", json=settings)
    assert (made.status_code, made.headers["location"], made.json()) == (201, "/indexes/notes", settings)
    assert (await client.get("/indexes/notes")).json() == settings | {"documents": 0, "chunks": 0}
    again = await client.post("/indexes", json=settings)
    assert (again.status_code, again.json()["detail"]) == (409, "Index 'notes' exists already.")
    plain = await client.post("/indexes", json={"index_name": "plain"})
    assert plain.json()["chunk_tokens"] is None
    assert "plain" in (await client.get("/indexes")).json()


async def test_indexes_are_listed_in_detail(client: httpx.AsyncClient) -> None:
    """The detailed list has the same data of each index as its own route. The plain list has the names."""
    listed = (await client.get("/indexes", params={"details": "true"})).json()
    assert [index["index_name"] for index in listed] == (await client.get("/indexes")).json() == ["docs", "empty"]
    assert listed[0] == (await client.get("/indexes/docs")).json()


async def test_settings_are_changed_in_place(client: httpx.AsyncClient) -> None:
    """A change sets the named settings.

    Null restores the default. An invalid change is refused and changes nothing.
    """
    path = "/indexes/docs"
    changed = await client.patch(path, json={"fusion": "ranks", "dense_weight": 0.25, "chunk_tokens": 64})
    assert changed.status_code == 200
    assert changed.json()["index_name"] == "docs"
    again = (await client.patch(path, json={"dense_weight": None, "expand": True})).json()
    assert (again["fusion"], again["dense_weight"], again["chunk_tokens"], again["expand"]) == (
        "ranks",
        None,
        64,
        True,
    )
    for body, field in (
        ({"fusion": "best"}, "fusion"),
        ({"fusion": "scores", "dense_weight": 1.1}, "dense_weight"),
        ({"expand": "yes"}, "expand"),
        ({"ocr": "on"}, "ocr"),
        ({"expand": False, "embedding": "other-embedder"}, "embedding"),
        ({"language": "de"}, "language"),
        ({"color": "red"}, "color"),
    ):
        answer = await client.patch(path, json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert (await client.patch("/indexes/nope", json={})).status_code == 404
    assert (await client.patch(path, json={})).json() == again


async def test_an_index_is_rebuilt(client: httpx.AsyncClient) -> None:
    """A rebuild runs in the background, and its state can be read until it has ended."""
    begun = await client.post("/indexes/docs/rebuild", json={"embedding": "other-embedder", "language": "fr"})
    assert begun.json()["language"] == "fr"
    assert (begun.status_code, begun.headers["location"]) == (202, "/indexes/docs/rebuild")
    assert (begun.json()["state"], begun.json()["finished_at"]) == ("running", None)
    done = (await client.get("/indexes/docs/rebuild")).json()
    assert (done["state"], done["embedding"], done["error"]) == ("succeeded", "other-embedder", "")
    assert done["documents_done"] == done["documents_total"]
    assert (await client.get("/indexes/docs")).json()["embedding"] == "other-embedder"
    never = await client.get("/indexes/empty/rebuild")
    assert (never.status_code, never.json()["detail"]) == (404, "Index 'empty' has not been rebuilt.")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"embedding": "gpt"}, "embedding"),
        ({"embedding": 1}, "embedding"),
        ({"language": 1}, "language"),
        ({"chunk_tokens": 15}, "chunk_tokens"),
        ({"chunk_tokens": "many"}, "chunk_tokens"),
        ({"chunk_overlap": -1}, "chunk_overlap"),
        ({"color": "red"}, "color"),
        ([], None),
    ],
)
async def test_invalid_settings_are_refused(client: httpx.AsyncClient, body: Any, field: str | None) -> None:
    """An invalid field is refused with 400 on both routes, and no index is created or rebuilt."""
    for path, more in (("/indexes/docs/rebuild", {}), ("/indexes", {"index_name": "new"})):
        answer = await client.post(path, json=body | more if isinstance(body, dict) else body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field
    assert "new" not in (await client.get("/indexes")).json()
    assert (await client.get("/indexes/docs/rebuild")).status_code == 404


async def test_invalid_names_and_unknown_indexes_are_refused(client: httpx.AsyncClient) -> None:
    """An invalid name is refused with 400, and an unknown index with 404. The error names the field."""
    for answer in (await client.get("/indexes/nope"), await client.post("/indexes/nope/rebuild", json={})):
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "index")
    assert (await client.get("/indexes/.nope")).json()["error"]["param"] == "index"
    for name in ("", "a/b", ".a"):
        answer = await client.post("/indexes", json={"index_name": name})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "index_name")

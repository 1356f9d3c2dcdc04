"""The owner of a document, which only the gateway can set."""

import json
from typing import Any

import httpx
import pytest
from gateway.domain import ownership
from gateway.identity.caller import with_own_oids
from gateway.main import build_app
from gateway.settings import Settings
from servicekit import api_keys
from servicekit.errors import PermissionDenied
from servicekit.principal import Principal

ANN = Principal("north", "ann", ("crew",))
OTHERS = [
    b'{"uploaded_by":"bob"}',
    b'{"uploaded_by":["ann"]}',
    b'{"uploaded_by":["bob"]}',
    b'{"uploaded_by":null}',
    b'{"a":1,"uploaded_by":"ann","uploaded_by":"bob"}',
    b'{"\\u0075ploaded_by":"bob"}',
    b'{"uploaded\\u005fby":"bob"}',
]


@pytest.mark.parametrize("metadata", OTHERS)
def test_metadata_with_another_owner_are_refused(metadata: bytes) -> None:
    """Another owner is refused in any spelling of the key, and in any document of the request."""
    with pytest.raises(PermissionDenied, match="uploaded_by"):
        ownership.check(ANN, [b"{}", metadata])


@pytest.mark.parametrize(
    "metadata",
    [
        b"{}",
        b'{"uploaded_by":"ann"}',
        b'{"a":{"uploaded_by":"bob"}}',
        b'{"a":"\\n uploaded_by bob"}',
        b'{"a\\n":1}',
    ],
)
def test_other_metadata_are_accepted(metadata: bytes) -> None:
    """The caller's own name, and the key inside other values, are accepted."""
    ownership.check(ANN, [metadata])


def test_own_metadata_are_accepted() -> None:
    """The metadata that the gateway writes are accepted from the same user."""
    ownership.check(ANN, [ownership.own_metadata(ANN)])


def test_only_the_owner_has_the_id_of_the_owner() -> None:
    """Another user has no `own:` id, even with a shared id or with the owner's name among the ids."""
    oids = set(with_own_oids(ANN).oids)
    assert oids - set(ANN.oids) == {"own:ann"}
    assert "own:ann" not in with_own_oids(Principal("north", "bob", ("crew", "ann"))).oids


def test_own_ids_of_credentials_are_removed() -> None:
    """An `own:` id in a token or a key is removed, and the user's own one is added once."""
    assert with_own_oids(Principal("north", "bob", ("own:ann", "crew", "own:bob", "own:"))).oids == (
        "crew",
        "own:bob",
    )


async def test_every_route_checks_the_owner(fakes: Any) -> None:
    """Each route for documents refuses another owner with 403 and stores nothing.

    The caller's own name is accepted.
    """
    key, record = api_keys.create("bob", "north", roles=("ingest",))
    fakes.keys.replace([record])
    fakes.indexes.indexes["docs"] = {}
    app = build_app(Settings(auth="keys", ingest_urls=["example.com"]), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    statuses: dict[str, list[int]] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://g", headers={"api-key": key}) as http:
        for owner in ("ann", "bob"):
            metadata = {"uploaded_by": owner}
            document = {"doc_id": "a", "text": "b", "metadata": metadata}
            linked = {"index": "docs", "urls": ["https://example.com/a.md"], "metadata": metadata}
            answers = [
                await http.post(
                    "/documents",
                    data={"index": "docs", "metadata": json.dumps(metadata)},
                    files={"file": ("a.md", b"# A")},
                ),
                await http.post("/documents", json=linked),
                await http.post("/index", json={"index_name": "docs", "documents": [document]}),
                await http.post("/indexes/docs/documents", json={"documents": [document]}),
            ]
            statuses[owner] = [answer.status_code for answer in answers]
            if owner == "ann":
                assert {answer.json()["error"]["param"] for answer in answers} == {"metadata.uploaded_by"}
                assert not fakes.ingest.uploads
                assert not fakes.indexes.indexes["docs"]
    assert statuses == {"ann": [403] * 4, "bob": [202, 202, 200, 200]}

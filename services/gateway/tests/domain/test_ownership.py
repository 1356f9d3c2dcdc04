"""Whose own a document is: nobody can say that but the gateway."""

import json
from typing import Any

import httpx
import pytest
from gateway.domain import ownership
from gateway.identity.caller import with_own
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
def test_a_document_of_somebody_elses_own(metadata: bytes) -> None:
    """Is refused, however its key is written, and wherever it stands."""
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
def test_other_metadata_pass(metadata: bytes) -> None:
    """What the caller's own documents have already, and what says something else."""
    ownership.check(ANN, [metadata])


def test_a_document_of_ones_own_can_be_brought_again() -> None:
    """With the metadata that it has."""
    ownership.check(ANN, [ownership.own_metadata(ANN)])


def test_only_the_user_holds_what_opens_it() -> None:
    """Not who shares an id with the user, nor who has the user's name among his ids."""
    held = set(with_own(ANN).oids)
    assert held - set(ANN.oids) == {"own:ann"}
    assert "own:ann" not in with_own(Principal("north", "bob", ("crew", "ann"))).oids


def test_no_issuer_opens_the_documents_of_another_user() -> None:
    """An id of a token or a key that says `own:` is dropped; the user's own one is there once."""
    assert with_own(Principal("north", "bob", ("own:ann", "crew", "own:bob", "own:"))).oids == ("crew", "own:bob")


async def test_on_every_route_that_brings_documents(fakes: Any) -> None:
    """403 with the field, in each way, and nothing is taken in; the caller's own name passes."""
    key, record = api_keys.make("bob", "north", roles=("ingest",))
    fakes.keys.replace([record])
    fakes.indexes.indexes["docs"] = {}
    app = build_app(Settings(auth="keys", ingest_urls=["example.com"]), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    statuses: dict[str, list[int]] = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://g", headers={"api-key": key}) as http:
        for owner in ("ann", "bob"):
            said = {"uploaded_by": owner}
            document = {"doc_id": "a", "text": "b", "metadata": said}
            linked = {"index": "docs", "urls": ["https://example.com/a.md"], "metadata": said}
            answers = [
                await http.post(
                    "/documents",
                    data={"index": "docs", "metadata": json.dumps(said)},
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

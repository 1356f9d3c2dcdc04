from typing import Any

import httpx
import pytest
from gateway.domain import Model


@pytest.fixture
def several(fakes: Any) -> None:
    """Two models that can be reached, one that cannot."""
    fakes.generator.offered = (
        Model("org/chat", 8192, "tests", 7, ready=True),
        Model("away", 0, "tests", 0, ready=False),
        Model("old", 0, "tests", 0, ready=True),
    )


@pytest.mark.usefixtures("several")
async def test_models_are_listed(client: httpx.AsyncClient) -> None:
    """Those for chats that can be reached; the window only where it is known.

    Clients offer all that is listed for chats, so a model for embeddings is found by its name alone.
    """
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert listed["data"] == [
        {"id": "org/chat", "object": "model", "created": 7, "owned_by": "tests", "max_model_len": 8192},
        {"id": "old", "object": "model", "created": 0, "owned_by": "tests"},
    ]
    for name in ("org/chat", "org%2Fchat"):
        assert (await client.get(f"/v1/models/{name}")).json() in listed["data"]
    assert (await client.get("/v1/models/fake-embedder")).json() == {
        "id": "fake-embedder",
        "object": "model",
        "created": 0,
        "owned_by": "causeway",
        "max_model_len": 256,
    }


@pytest.mark.usefixtures("several")
async def test_a_model_that_cannot_be_reached(client: httpx.AsyncClient) -> None:
    """It is in no list; who asks for it by its name is told that it is known, and away."""
    assert "away" not in (await client.get("/v1/models")).text
    response = await client.get("/v1/models/away")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    said = "The model 'away' cannot be reached at the moment."
    assert response.json()["error"]["message"] == response.json()["detail"] == said


async def test_an_unknown_model(client: httpx.AsyncClient) -> None:
    """404, in both shapes of errors."""
    response = await client.get("/v1/models/nope")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == response.json()["detail"] == "No such model: 'nope'."

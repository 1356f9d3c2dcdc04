from typing import Any

import httpx
import pytest
from gateway.domain import Model


@pytest.fixture
def several(fakes: Any) -> None:
    """Offer two models that can be reached, and one that cannot."""
    fakes.generator.offered = (
        Model("org/chat", 8192, "tests", 7, ready=True),
        Model("away", 0, "tests", 0, ready=False),
        Model("old", 0, "tests", 0, ready=True),
    )


@pytest.mark.usefixtures("several")
async def test_models_are_listed(client: httpx.AsyncClient) -> None:
    """The list has the reachable chat models, with the window if it is known.

    Clients offer every listed model for chats. A model for embeddings is therefore found only by its name.
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
    """A model that cannot be reached is not listed, and its own route answers with 503."""
    assert "away" not in (await client.get("/v1/models")).text
    response = await client.get("/v1/models/away")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    said = "The model 'away' cannot be reached. Try again."
    assert response.json()["error"]["message"] == response.json()["detail"] == said


async def test_an_unknown_model(client: httpx.AsyncClient) -> None:
    """An unknown model is answered with 404 in both formats of errors."""
    response = await client.get("/v1/models/nope")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == response.json()["detail"] == "No such model: 'nope'."

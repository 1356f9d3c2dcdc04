from typing import Any

import httpx
import pytest
from gateway.domain import Model


@pytest.fixture
def several(fakes: Any) -> None:
    """Offer two available models and an unavailable one."""
    fakes.generator.offered = (
        Model("org/chat", 8192, "tests", 7, ready=True),
        Model("unavailable", 0, "tests", 0, ready=False),
        Model("old", 0, "tests", 0, ready=True),
    )


@pytest.mark.usefixtures("several")
async def test_models_are_listed(client: httpx.AsyncClient) -> None:
    """The list has the available chat models, with their context windows if known.

    Clients offer every listed model for chats. Therefore an embedding model is found only by its name.
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
async def test_an_unavailable_model_is_not_listed(client: httpx.AsyncClient) -> None:
    """An unavailable model is not listed, and its own route returns 503."""
    assert "unavailable" not in (await client.get("/v1/models")).text
    response = await client.get("/v1/models/unavailable")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    message = "The model 'unavailable' cannot be reached. Try again."
    assert response.json()["error"]["message"] == response.json()["detail"] == message


async def test_an_unknown_model_is_not_found(client: httpx.AsyncClient) -> None:
    """An unknown model gets the status 404, with the message in both error formats."""
    response = await client.get("/v1/models/nope")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == response.json()["detail"] == "No such model: 'nope'."

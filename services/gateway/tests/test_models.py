from typing import Any

import httpx
import pytest
from gateway.domain import Model
from gateway.fakes import FakeGenerator
from servicekit.deadline import Deadline
from servicekit.principal import Principal


class Several(FakeGenerator):
    """Two models."""

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        return (Model("org/chat", 8192, "tests", 7, ready=True), Model("old", 0, "tests", 0, ready=False))


@pytest.fixture
def several(fakes: Any) -> None:
    fakes.generator = Several()


@pytest.mark.usefixtures("several")
async def test_models_are_listed(client: httpx.AsyncClient) -> None:
    """Those for chats, then those for embeddings; the window only where it is known."""
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert listed["data"] == [
        {"id": "org/chat", "object": "model", "created": 7, "owned_by": "tests", "max_model_len": 8192},
        {"id": "old", "object": "model", "created": 0, "owned_by": "tests"},
        {"id": "fake-embedder", "object": "model", "created": 0, "owned_by": "causeway", "max_model_len": 256},
    ]
    for name in ("org/chat", "org%2Fchat", "fake-embedder"):
        assert (await client.get(f"/v1/models/{name}")).json() in listed["data"]


async def test_an_unknown_model(client: httpx.AsyncClient) -> None:
    """404, in both shapes of errors."""
    response = await client.get("/v1/models/nope")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == response.json()["detail"] == "No such model: 'nope'."

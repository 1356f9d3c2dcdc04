from typing import Any

import httpx


async def test_each_text_gets_a_vector(client: httpx.AsyncClient) -> None:
    """Each text gets a vector, the tokens are counted, and the model is optional."""
    response = await client.post("/v1/embeddings", json={"input": ["one two", "three"], "model": "fake-embedder"})
    assert response.status_code == 200
    answer = response.json()
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert all(len(item["embedding"]) == 2 for item in answer["data"])
    assert (answer["model"], answer["usage"]["prompt_tokens"]) == ("fake-embedder", 3)
    assert (await client.post("/v1/embeddings", json={"input": "one"})).json()["model"] == "fake-embedder"


async def test_the_model_in_the_path_takes_precedence(client: httpx.AsyncClient) -> None:
    """The model in the path takes precedence over the model in the body."""
    path = "/openai/deployments/{}/embeddings?api-version=2024-10-21"
    body = {"input": "one", "model": "nope"}
    assert (await client.post(path.format("fake-embedder"), json=body)).json()["model"] == "fake-embedder"
    body["model"] = "fake-embedder"
    assert (await client.post(path.format("nope"), json=body)).status_code == 404


async def test_invalid_requests_are_refused(client: httpx.AsyncClient, fakes: Any) -> None:
    """Invalid fields, an unknown model and another media type are refused. Invalid fields cause no call."""
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"input": [1, -2]}, 400, "input"),
        ({"input": "a", "dimensions": 3}, 400, "dimensions"),
        ({"input": ""}, 400, "input"),
    ]
    for body, status, field in cases:
        response = await client.post("/v1/embeddings", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (status, field)
    assert fakes.embedder.calls == 0
    assert (await client.post("/v1/embeddings", json={"input": "a", "dimensions": 2})).status_code == 200
    assert (await client.post("/v1/embeddings", json={"input": "a", "model": "nope"})).status_code == 404
    assert (
        await client.post("/v1/embeddings", content=b"x", headers={"content-type": "text/plain"})
    ).status_code == 415

"""Embedding models on a server: requests, a change of the default model, and outages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import free_ports
from openai import AsyncOpenAI

REMOTE = """
- name: e5
  kind: openai
  url: {url}
  model: org/e5
  dimension: 256
  tries: 2
  query_prefix: "query: "
  passage_prefix: "passage: "
"""
BUNDLED = "\n- kind: minilm"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Start a server that records its requests and computes embeddings from the words of a text."""
    async with ModelServer.started() as running:
        yield running


def settings(folder: Path, *models: str, url: str = "") -> dict[str, str]:
    """Write the configuration of embedding models, and return the environment variables of a stack that uses it."""
    file = folder / "embeddings.yaml"
    file.write_text("models:" + "".join(models).replace("{url}", url))
    return {"CAUSEWAY_EMBEDDINGS_FILE": str(file), "CAUSEWAY_SHUTDOWN_GRACE": "10"}


def take_inputs(server: ModelServer) -> list[str]:
    """Return the texts of the requests since the last call."""
    texts = [text for request in server.requests for text in request.json()["input"]]
    server.requests.clear()
    return texts


async def retrieve(stack: Any, index: str, query: str = "high water at Kelsay") -> Any:
    return await stack.http.post("/retrieve", json={"index_name": index, "query": query})


async def search_by_text(stack: Any, index: str, query: str = "high water at Kelsay") -> Any:
    """Return the passages of a text search."""
    question = stack.question(query, index=index, retrieval_mode="text")
    return (await stack.http.post("/2024-04/chat", json=question)).json()["context"]["data_points"]["text"]


async def test_a_server_embeds_passages_and_queries(start_stack: Any, tmp_path: Path, server: ModelServer) -> None:
    """Passages and queries get their prefixes, and texts of OpenAI's clients get none. Both models can be used."""
    async with start_stack(tmp_path / "data", **settings(tmp_path, REMOTE, BUNDLED, url=server.url)) as stack:
        assert (await stack.ingest())["state"] == "succeeded"
        [passage] = take_inputs(server)
        assert passage.startswith("passage: ")
        assert "High water at Kelsay" in passage
        found = (await retrieve(stack, "tides")).raise_for_status().json()
        assert found["results"][0]["text"].endswith("High water at Kelsay is at six in the morning.")
        assert take_inputs(server) == ["query: high water at Kelsay"]

        async with AsyncOpenAI(base_url=f"{stack.http.base_url}/v1", api_key="x", max_retries=0) as client:
            for name in ("e5", "all-minilm-l6-v2"):
                assert (await client.models.retrieve(name)).id == name
            embedded = await client.embeddings.create(model="e5", input=["a ferry", "a ferry and a bridge"])
            assert take_inputs(server) == ["a ferry", "a ferry and a bridge"]
            assert [len(each.embedding) for each in embedded.data] == [256, 256]
            assert all(abs(sum(x * x for x in each.embedding) - 1) < 1e-4 for each in embedded.data)
            bundled = await client.embeddings.create(model="all-minilm-l6-v2", input="a ferry")
            assert len(bundled.data[0].embedding) == 384
            assert not server.requests


async def test_a_change_of_the_default_model(start_stack: Any, tmp_path: Path, server: ModelServer) -> None:
    """An index keeps its model, and new indexes get the default model. If the model of an index is not configured,
    the index has only text search.
    """
    data = tmp_path / "data"
    async with start_stack(data, **settings(tmp_path, REMOTE, url=server.url)) as stack:
        assert (await stack.ingest("old"))["state"] == "succeeded"
    take_inputs(server)
    async with start_stack(data, **settings(tmp_path, BUNDLED, REMOTE, url=server.url)) as stack:
        assert (await stack.ingest("new"))["state"] == "succeeded"
        assert not server.requests
        assert (await stack.ingest("old", "more.md", b"# More\n\nLow water is at noon.\n"))["state"] == "succeeded"
        assert [text[:9] for text in take_inputs(server)] == ["passage: "]
        for index, requests in (("old", 1), ("new", 0)):
            assert (await retrieve(stack, index)).json()["count"] >= 1
            assert len(take_inputs(server)) == requests
    async with start_stack(data, **settings(tmp_path, BUNDLED)) as stack:
        refused = await retrieve(stack, "old")
        assert refused.status_code == 409
        assert "'e5'" in refused.text
        assert "configured" in refused.text
        assert len(await search_by_text(stack, "old")) >= 1
        job = await stack.ingest("old", "third.md", b"# Third\n\nNothing.\n")
        assert job["state"] == "failed"
        assert "'e5'" in job["error"]["message"]
        assert (await retrieve(stack, "new")).json()["count"] >= 1
    assert not server.requests


async def test_a_server_that_starts_later(start_stack: Any, tmp_path: Path) -> None:
    """The stack starts although the server is unavailable. Errors name the model, and jobs wait for the server."""
    (port,) = free_ports(1)
    environment = settings(tmp_path, REMOTE, url=f"http://127.0.0.1:{port}/v1")
    environment["CAUSEWAY_INGEST_RETRY_SECONDS"] = "1"
    async with start_stack(tmp_path / "data", **environment) as stack:
        unavailable = await stack.http.post("/v1/embeddings", json={"model": "e5", "input": "a"})
        assert unavailable.status_code == 503
        assert "'e5'" in unavailable.json()["error"]["message"]
        upload = await stack.http.post(
            "/documents", data={"index": "tides"}, files={"file": ("a.md", b"# A\n\nText.\n")}
        )
        job_id = upload.raise_for_status().json()["jobs"][0]["id"]
        server = ModelServer()
        async with asyncio.timeout(60):
            while not (job := (await stack.http.get(f"/jobs/{job_id}")).json()).get("error"):
                assert job["state"] != "failed", job
                await asyncio.sleep(0.1)
        assert "'e5'" in job["error"]["message"]
        await server.start(port=port)
        try:
            assert (await stack.wait_for_job(job_id))["state"] == "succeeded"
            assert (await retrieve(stack, "tides", "text")).json()["count"] == 1
        finally:
            await server.stop()
        refused = await retrieve(stack, "tides", "another text")  # the vector of "text" is cached
        assert refused.status_code == 503
        assert "'e5'" in refused.text
        assert len(await search_by_text(stack, "tides", "a text")) == 1

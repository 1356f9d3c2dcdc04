import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.dialects.rag_chat.registration import Stages
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.server.metrics import Metrics
from gateway.settings import Settings
from prometheus_client import Counter
from servicekit.errors import Unavailable

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}], "index_name": "docs"}

ROUTES = (
    "chat",
    "index",
    "indexes",
    "indexes_document",
    "indexes_update_document",
    "indexes_delete_document",
    "indexes_retrieve",
    "persist",
    "load",
    "delete_index",
    "embedding",
)


async def values(client: httpx.AsyncClient) -> dict[str, float]:
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = (line.rpartition(" ") for line in response.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def requests(name: str, status: str) -> str:
    return f'{name}_requests_total{{status="{status}"}}'


async def test_every_metric_exists_at_the_start(client: httpx.AsyncClient) -> None:
    """Every metric exists at the start with the value zero."""
    found = await values(client)
    for name in ROUTES:
        for status in ("success", "failure"):
            assert found[requests(f"rag_{name}", status)] == 0
            assert found[f'rag_{name}_latency_seconds_count{{status="{status}"}}'] == 0
    for name in ("rag_retrieve_result_count", "rag_lowest_source_score", "rag_avg_source_score"):
        assert found[f"{name}_count"] == 0
    assert found["num_requests_running"] == 0


async def test_each_route_is_counted_by_its_outcome(client: httpx.AsyncClient) -> None:
    """Each request is counted once, as a success or a failure, in the metric of its route."""
    document = {"text": "A", "doc_id": "a"}
    calls: list[tuple[str, str, str, Any]] = [
        ("rag_index", "POST", "/index", {"index_name": "docs", "documents": [document]}),
        ("rag_indexes", "GET", "/indexes", None),
        ("rag_indexes_document", "GET", "/indexes/docs/documents", None),
        ("rag_indexes_update_document", "POST", "/indexes/docs/documents", {"documents": [document]}),
        ("rag_indexes_delete_document", "POST", "/indexes/docs/documents/delete", {"doc_ids": ["a"]}),
        ("rag_indexes_retrieve", "POST", "/retrieve", {"index_name": "docs", "query": "ferry"}),
        ("rag_persist", "POST", "/persist/docs?path=x", None),
        ("rag_load", "POST", "/load/docs?path=x&overwrite=true", None),
        ("rag_embedding", "POST", "/v1/embeddings", {"input": "a"}),
        ("rag_chat", "POST", "/v1/chat/completions", QUESTION),
        ("rag_delete_index", "DELETE", "/indexes/docs", None),
    ]
    for name, method, path, body in calls:
        response = await client.request(method, path, json=body)
        assert response.status_code == 200, (name, response.text)
        assert (await values(client))[requests(name, "success")] == 1, name
    for name, method, path, body in calls:
        if name == "rag_indexes":
            continue
        wrong = body and (QUESTION | {"index_name": "nope"} if name == "rag_chat" else {})
        response = await client.request(method, path.partition("?")[0].replace("docs", "nope"), json=wrong)
        assert response.status_code in (400, 404), (name, response.text)
        found = await values(client)
        assert (found[requests(name, "success")], found[requests(name, "failure")]) == (1, 1), name


async def test_other_raw_routes_are_no_chats(http: httpx.AsyncClient) -> None:
    """A message of an agent, and the reading of a stored response, are successes of the front end but no chats."""
    response = await http.post("/v1/responses", json={"input": "When does the ferry leave?", "background": True})
    await http.get(f"/v1/responses/{response.json()['id']}")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    assert (await http.post("/mcp", json=message, headers=headers)).status_code == 200
    found = await values(http)
    assert (found[requests("rag_chat", "success")], found[requests("rag_chat", "failure")]) == (1, 0)
    assert 'causeway_requests_total{frontend="default",status="failure"}' not in found
    assert found['causeway_requests_total{frontend="default",status="success"}'] == 3


@pytest.mark.parametrize("stream", [True, False])
async def test_an_interrupted_answer_is_a_failure(client: httpx.AsyncClient, fakes: Any, stream: bool) -> None:
    """An interrupted answer is counted as a failure, even if its status was 200."""
    script = FakeGenerator.saying("At ").script
    fakes.generator.script = [*script[:-1], Unavailable("The model went away.")]
    sent = client.post("/v1/chat/completions", json=QUESTION | {"stream": stream})
    if stream:
        with pytest.raises(AssertionError):  # httpx's transport asserts that the response is complete
            await sent
    else:
        assert (await sent).status_code == 503
    found = await values(client)
    assert (found[requests("rag_chat", "success")], found[requests("rag_chat", "failure")]) == (0, 1)


async def test_passages_and_scores_are_measured(client: httpx.AsyncClient) -> None:
    """A retrieval and a chat measure the number of passages, the lowest score and the mean score."""
    await client.post("/retrieve", json={"index_name": "docs", "query": "ferry"})
    found = await values(client)
    assert (found["rag_retrieve_result_count_count"], found["rag_retrieve_result_count_sum"]) == (1, 2)
    assert found["rag_lowest_source_score_sum"] == pytest.approx(1 / 3)
    assert found["rag_avg_source_score_sum"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    await client.post("/v1/chat/completions", json=QUESTION)
    assert (await values(client))["rag_retrieve_result_count_count"] == 2


async def test_running_requests_are_counted(http: httpx.AsyncClient, fakes: Any) -> None:
    """Running requests are counted. After its client has left, a request counts as a failure and no longer runs."""
    fakes.generator.gate = asyncio.Event()
    async with http.stream("POST", "/v1/chat/completions", json=QUESTION | {"stream": True}) as response:
        assert response.status_code == 200
        assert (await values(http))["num_requests_running"] == 1
    for _ in range(100):
        found = await values(http)
        if not found["num_requests_running"]:
            break
        await asyncio.sleep(0.02)
    assert found["num_requests_running"] == 0
    assert found[requests("rag_chat", "failure")] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_every_protocol_is_counted_by_front_end(
    fakes: Any, settings: Settings, tmp_path: Path, stream: bool
) -> None:
    """Requests of every protocol, including refused requests, are counted under the profile's name."""
    (tmp_path / "frontends.yaml").write_text("frontends: [{name: the-help, mount: help, index: docs}]")
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    transport = httpx.ASGITransport(build_app(settings, fakes.services()))
    paths = ["/v1/chat/completions", *Stages().single_stage_paths(), *Stages().bare_paths()]
    body = {"messages": QUESTION["messages"], "stream": stream}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        for number, path in enumerate(paths, 1):
            assert (await client.post(f"/help{path}", json=body)).status_code == 200
            wrong = await client.post(f"/help{path}", content=b"{", headers={"content-type": "application/json"})
            assert wrong.status_code == 400
            found = await values(client)
            for status in ("success", "failure"):
                counted = found[f'causeway_requests_total{{frontend="the-help",status="{status}"}}']
                assert counted == found[requests("rag_chat", status)] == number, path


def test_two_gateways_count_separately() -> None:
    """Two gateways in one process count separately."""
    first, second = Metrics(), Metrics()
    first.count_request("rag_chat", 1, success=True)
    assert b'rag_chat_requests_total{status="success"} 1.0' in first.text()
    assert b'rag_chat_requests_total{status="success"} 0.0' in second.text()


def test_a_tenants_administrator_sees_no_other_tenant() -> None:
    """The metrics without tenants omit all metrics that have a tenant label."""
    metrics = Metrics()
    Counter("causeway_tokens", "Tokens", ["causeway_tenant"], registry=metrics.registry).labels("north").inc()
    metrics.count_frontend("default", success=True)
    assert b"north" in metrics.text()
    text = metrics.text(tenants=False)
    assert b"north" not in text
    assert b'causeway_requests_total{frontend="default",status="success"} 1.0' in text

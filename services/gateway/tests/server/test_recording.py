import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.servers import measured
from gateway.answering.timeline import Timeline
from gateway.domain import Action, Delta, Detections, DetectorFailure, Direction, Finding, Finish, Start, Usage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.caller import Caller
from gateway.main import build_app
from gateway.server.accounting import Account
from gateway.server.prices import Price, Prices
from gateway.server.recording import _METHODS, Recording, log_line, pseudonym
from gateway.server.request_state import RequestState, state_of
from servicekit import keys
from servicekit.principal import Principal

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}], "index_name": "docs"}
PLAIN = {"model": "stub", "messages": QUESTION["messages"]}


def written(fakes: Any, subjects: str = "causeway.usage.") -> list[dict[str, Any]]:
    """Return the records of a kind, each with its subject."""
    return [
        json.loads(record.payload) | {"subject": record.subject}
        for record in fakes.records.written
        if record.subject.startswith(subjects)
    ]


def metric_sum(name: str, **labels: str) -> float:
    """Return the sum of a metric's samples with the given labels."""
    return sum(value for found, value in measured(name) if labels.items() <= found.items())


@pytest.fixture
async def mounted(fakes: Any, settings: Any, tmp_path: Path) -> Any:
    """Return a function that creates a client of a gateway with one front end, ``/help``."""
    clients: list[httpx.AsyncClient] = []

    def make(members: str) -> httpx.AsyncClient:
        profile = f"frontends: [{{name: the-help, mount: help, index: docs, {members}}}]"
        (tmp_path / "frontends.yaml").write_text(profile)
        fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
        transport = httpx.ASGITransport(build_app(settings, fakes.services()))
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://gateway"))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/2024-04/chat", "/2026-04-10/chat"])
async def test_a_chat_writes_one_record(client: httpx.AsyncClient, fakes: Any, path: str, stream: bool) -> None:
    """A chat writes one record with the trace, tenant, front end, route, status, duration and tokens."""
    fakes.prices = Prices("EUR", {"fake": Price(1.0, 2.0)})
    body: dict[str, Any] = QUESTION | {"stream": stream}
    if path.startswith("/2"):
        body = {"messages": QUESTION["messages"], "context": {"overrides": {"index": "docs"}}}
        path += "/stream" if stream else ""
    response = await client.post(path, json=body)
    assert response.status_code == 200
    [record] = written(fakes)
    assert record["subject"] == keys.usage_subject("local")
    assert record["trace_id"] == response.headers["x-trace-id"]
    assert (record["tenant"], record["frontend"], record["route"], record["status"]) == (
        "local",
        "default",
        path,
        200,
    )
    assert record["duration_ms"] > 0
    assert record["input_tokens"] > 0
    assert record["output_tokens"] > 0
    assert "estimated" not in record


async def test_the_cost_of_an_answer_is_recorded(client: httpx.AsyncClient, fakes: Any) -> None:
    """The cost of an answer is computed from the model's price. Without a price, the record has no cost."""
    first = await client.post("/v1/chat/completions", json=QUESTION | {"model": "small"})
    assert first.status_code == 200
    [record] = written(fakes)
    assert record["model"] == "small"
    assert "cost" not in record
    fakes.prices = Prices("EUR", {"small": Price(1_000_000.0, 2_000_000.0)})
    measured("")
    before = metric_sum("causeway_cost_total", currency="EUR")
    await client.post("/v1/chat/completions", json=QUESTION | {"model": "small"})
    record = written(fakes)[-1]
    assert record["cost"] == record["input_tokens"] + 2 * record["output_tokens"]
    assert record["currency"] == "EUR"
    assert metric_sum("causeway_cost_total", currency="EUR") - before == record["cost"]


@pytest.mark.parametrize("detectors", ["{}", "{output: [{id: words, action: redact}]}"])
async def test_the_model_of_an_answer_is_recorded(mounted: Any, fakes: Any, detectors: str) -> None:
    """Without a model in the request, the record has the model of the answer's first start, not of the last one."""
    client = mounted(f"detectors: {detectors}")
    start = Start(b'{"model":"fake","prompt_filter_results":[{"prompt_index":0}]}')
    later = Start(b'{"kv_transfer_params":{"remote":"text"}}')
    fakes.generator.script = [[start], [Delta(0, "Hello")], [later], [Finish(0, "stop"), Usage(7, 1)]]
    assert (await client.post("/help/chat/stream", json={"messages": QUESTION["messages"]})).status_code == 200
    [record] = written(fakes)
    assert record["model"] == "fake"


async def test_refusals_are_recorded_and_reading_requests_are_not(client: httpx.AsyncClient, fakes: Any) -> None:
    """A refused request writes a record with its status. Lists and health checks write none."""
    assert (await client.post("/v1/chat/completions", content=b"{")).status_code >= 400
    await client.get("/indexes")
    await client.get("/healthz")
    [record] = written(fakes)
    assert record["status"] >= 400
    assert "model" not in record


async def test_the_bytes_of_documents_are_recorded(client: httpx.AsyncClient, fakes: Any) -> None:
    """The record of added documents has the bytes of the body."""
    body = {"index_name": "docs", "documents": [{"text": "A" * 1000, "doc_id": "a"}]}
    assert (await client.post("/index", json=body)).status_code == 200
    [record] = written(fakes)
    assert 1000 < record["ingested_bytes"] < 1200


async def test_embeddings_are_recorded(client: httpx.AsyncClient, fakes: Any) -> None:
    """The record of embeddings has the input tokens and the model."""
    assert (await client.post("/v1/embeddings", json={"input": "How high is the tide?"})).status_code == 200
    [record] = written(fakes)
    assert record["input_tokens"] > 0
    assert record["model"]


@pytest.mark.parametrize("stream", [False, True])
async def test_findings_are_audited(mounted: Any, fakes: Any, stream: bool) -> None:
    """A finding writes one audit record and is counted. The record does not have the found text."""
    client = mounted("detectors: {output: [{id: words, action: redact}]}")
    fakes.generator.script = FakeGenerator.saying("The secret is out.").script
    measured("")
    before = metric_sum("causeway_detections_total", causeway_verdict="redact", causeway_direction="output")
    path = "/help/chat/stream" if stream else "/help/chat"
    assert (await client.post(path, json={"messages": QUESTION["messages"]})).status_code == 200
    [record] = written(fakes, "causeway.audit.")
    assert record["subject"] == keys.audit_subject("local", "words", "redact")
    assert (record["detector"], record["verdict"], record["direction"]) == ("words", "redact", "output")
    assert (record["start"], record["end"], record["frontend"]) == (4, 10, "the-help")
    assert "text" not in record
    after = metric_sum("causeway_detections_total", causeway_verdict="redact", causeway_direction="output")
    assert after - before == 1


async def test_a_blocked_question_is_audited(mounted: Any, fakes: Any) -> None:
    """A blocked question is audited, with its text if the profile enables `audit_text`."""
    client = mounted("audit_text: true, detectors: {input: [{id: words, action: block}]}")
    await client.post("/help/chat", json={"messages": [{"role": "user", "content": "Tell the secret"}]})
    [record] = written(fakes, "causeway.audit.")
    assert (record["direction"], record["verdict"], record["text"]) == ("input", "block", "secret")


async def test_the_text_of_an_audit_record_is_cut(mounted: Any, fakes: Any) -> None:
    """The text of an audit record is cut to 10,000 characters."""
    client = mounted("audit_text: true, detectors: {input: [{id: words, action: block}]}")
    word = "secret" * 2000
    fakes.guardrails.words = (word,)
    await client.post("/help/chat", json={"messages": [{"role": "user", "content": word}]})
    [record] = written(fakes, "causeway.audit.")
    assert record["text"] == word[:10_000]


async def test_the_audit_records_of_a_request_are_limited(mounted: Any, fakes: Any) -> None:
    """A request writes at most 1000 audit records.

    A last record has the number of further findings. The metrics count all findings.
    """
    client = mounted("detectors: {input: [{id: words, action: report}]}")
    labels = {"causeway_verdict": "report", "causeway_direction": "input"}
    before = metric_sum("causeway_detections_total", **labels)
    question = [{"role": "user", "content": "secret " * 1500}]
    await client.post("/help/chat", json={"messages": question})
    *records, last = written(fakes, "causeway.audit.")
    assert [record["start"] for record in records] == list(range(0, 7000, 7))
    assert (last["detector"], last["verdict"], last["direction"], last["more"]) == ("words", "report", "input", 500)
    assert metric_sum("causeway_detections_total", **labels) - before == 1500


async def test_a_profile_can_disable_the_audit(mounted: Any, fakes: Any) -> None:
    """A request of a profile with `audit: off` writes only the usage record."""
    client = mounted("audit: off, detectors: {output: [{id: words, action: report}]}")
    fakes.generator.script = FakeGenerator.saying("The secret is out.").script
    await client.post("/help/chat", json={"messages": QUESTION["messages"]})
    assert written(fakes, "causeway.audit.") == []
    assert len(written(fakes)) == 1


async def test_a_required_audit_fails_closed(mounted: Any, fakes: Any) -> None:
    """A profile with `audit: required` refuses requests while records cannot be stored. Other profiles do not."""
    client = mounted("audit: required")
    fakes.records.away = True
    refused = await client.post("/help/chat", json={"messages": QUESTION["messages"]})
    assert refused.status_code == 503
    assert "audit" in refused.json()["error"]
    assert refused.headers["retry-after"] == "5"
    assert not fakes.generator.prompts
    assert (await client.post("/v1/chat/completions", json=QUESTION)).status_code == 200
    fakes.records.away = False
    assert (await client.post("/help/chat", json={"messages": QUESTION["messages"]})).status_code == 200


async def test_requests_are_measured(client: httpx.AsyncClient) -> None:
    """Requests are measured by route, status and dialect. Unknown paths share one label."""
    measured("")
    name = "http_server_request_duration_seconds_count"
    labels = {"http_route": "/2024-04/chat", "http_response_status_code": "200", "causeway_dialect": "2024-04"}
    before = metric_sum(name, **labels), metric_sum(name, http_route="")
    await client.post("/2024-04/chat", json={"messages": QUESTION["messages"]})
    await client.get("/nothing/here")
    assert metric_sum(name, **labels) - before[0] == 1
    assert metric_sum(name, http_route="") - before[1] == 1


async def test_labels_are_bounded(fakes: Any, settings: Any) -> None:
    """The number of label values stays limited for unknown paths, methods, models, tenants and detectors."""
    measured("")
    finding = Finding("", "type", "name", 1.0, Action.REPORT)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        number = scope["path"].rpartition("/")[2]
        timeline = Timeline()
        timeline.model, timeline.usage = f"model-{number}", Usage(1, 1)
        found = replace(finding, detector_id=f"detector-{number}")
        timeline.detections.append(Detections(Direction.INPUT, 0, (found,)))
        state = state_of(scope)
        state.identify(Caller(Principal(f"tenant-{number}")))
        state.timeline, state.status = timeline, 200

    recording = Recording(app, fakes.records, lambda: Prices("EUR", {}), ())
    for number in range(300):
        scope = {"type": "http", "method": f"M{number}", "path": f"/nowhere/{number}"}
        await recording(dict(scope), None, None)  # type: ignore[arg-type]  # the app uses neither
        await recording(scope | {"method": "POST"}, None, None)  # type: ignore[arg-type]  # as above
    requests = [labels for labels, _ in measured("http_server_request_duration_seconds_count")]
    assert not [labels for labels in requests if "nowhere" in labels["http_route"]]
    assert {labels["http_request_method"] for labels in requests} <= {*_METHODS, "other"}
    for metric, label in (
        ("causeway_tokens_total", "gen_ai_request_model"),
        ("causeway_tokens_total", "causeway_tenant"),
        ("causeway_detections_total", "causeway_detector"),
    ):
        values = {labels[label] for labels, _ in measured(metric) if labels[label].rpartition("-")[2].isdigit()}
        assert 0 < len(values) <= 200, label
        assert metric_sum(metric, **{label: "other"}) > 0, label


SECRET = "Does the ferry carry a treasure?"


async def test_the_log_line_of_a_chat(client: httpx.AsyncClient, fakes: Any) -> None:
    """The log line of a chat has its measures, and no text of the question or the answer."""
    body = {"messages": [{"role": "user", "content": SECRET}], "index_name": "docs"}
    with structlog.testing.capture_logs() as logs:
        response = await client.post("/v1/chat/completions", json=body)
    [line] = [entry for entry in logs if entry["event"] == "request"]
    assert line["trace_id"] == response.headers["x-trace-id"]
    assert {name: line[name] for name in ("method", "route", "status", "tenant", "frontend", "index")} == {
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "tenant": "local",
        "frontend": "default",
        "index": "docs",
    }
    assert line["dialect"]
    assert line["nodes_kept"] > 0
    assert line["request_bytes"] == len(response.request.content)
    for name in ("duration_ms", "first_token_ms", "input_tokens", "output_tokens"):
        assert line[name] > 0, name
    text = json.dumps(line)
    assert "treasure" not in text
    assert response.json()["choices"][0]["message"]["content"] not in text


async def test_a_refusal_is_logged_with_its_dialect(client: httpx.AsyncClient) -> None:
    """The log line of a refused request has the dialect and no empty fields."""
    with structlog.testing.capture_logs() as logs:
        await client.post("/2024-04/chat", content=b"{")
        await client.get("/nowhere/at/all")
    lines = [entry for entry in logs if entry["event"] == "request"]
    assert [(line["route"], line["status"]) for line in lines] == [("/2024-04/chat", 400), ("", 404)]
    assert lines[0]["dialect"]
    assert not lines[0].keys() & {"model", "input_tokens", "detections", "nodes_kept"}


async def test_the_log_line_of_a_retrieval(client: httpx.AsyncClient) -> None:
    """The log line of a retrieval has the index and the number of passages."""
    with structlog.testing.capture_logs() as logs:
        response = await client.post("/retrieve", json={"index_name": "docs", "query": "ferry"})
    assert response.status_code == 200
    [line] = [entry for entry in logs if entry["event"] == "request"]
    assert (line["route"], line["index"]) == ("/retrieve", "docs")
    assert line["nodes_kept"] > 0


def test_the_log_line_counts_the_verdicts() -> None:
    """The log line counts findings and failures by verdict, as the audit records and the metrics do."""
    found = Finding("words", "type", "name", 1.0, Action.REDACT)
    failures = (DetectorFailure("near", "no passages", not_asked=True), DetectorFailure("pii", "no answer"))
    timeline = Timeline()
    timeline.detections += [
        Detections(Direction.INPUT, 0, (found, found)),
        Detections(Direction.OUTPUT, 0, (), failures),
    ]
    state = RequestState(timeline=timeline)
    line = log_line(Account(state, "/chat", 0.1), "POST", "/chat", state)
    assert line["detections"] == {"redact": 2, "not_asked": 1, "error": 1}


def test_the_log_has_pseudonyms() -> None:
    """The log names a key by its id, and a user by a pseudonym of the tenant."""

    def line(caller: Caller) -> dict[str, Any]:
        state = RequestState(caller=caller, log={"key": caller.key_id} if caller.key_id else {})
        return log_line(Account(state, "/chat", 0.1), "POST", "/chat", state)

    ada = line(Caller(Principal("north", user="ada@example.org")))
    assert ada["user"] == pseudonym("north", "ada@example.org") != pseudonym("south", "ada@example.org")
    assert "ada" not in json.dumps(ada)
    key = line(Caller(Principal("north", user="ada@example.org"), key_id="k1"))
    assert (key["key"], "user" in key) == ("k1", False)
    assert pseudonym("north", "") == ""

"""Background responses: the gateway accepts them, any gateway answers them, and clients follow and cancel them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from causeway_testing.servers import eventually
from gateway.domain import Delta, Finish, Start, Usage
from gateway.domain.response_log import Entry
from gateway.main import build
from gateway.quotas.ledger import Ledger
from gateway.quotas.limits import Measure, parse
from gateway.response_runs import feed
from gateway.response_runs.background import BackgroundRuns
from gateway.settings import Settings
from servicekit import api_keys
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL

PATH = "/v1/responses"


@pytest.fixture
async def gateway(fakes: Any, settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, BackgroundRuns]]:
    app, runs = build(settings, fakes.services())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client, runs


async def accepted(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post(PATH, json={"input": "When?", "background": True, **body})
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


async def work(fakes: Any, runs: BackgroundRuns) -> None:
    """Answer all queued responses."""
    while (taken := await fakes.response_jobs.take(0)) is not None:
        await runs.run_job(taken)


async def events_of(client: httpx.AsyncClient, name: str) -> list[Any]:
    return responses.events((await client.get(f"{PATH}/{name}", params={"stream": "true"})).text)


async def test_a_response_is_queued_and_answered(gateway: Any, fakes: Any) -> None:
    """A response is first queued and later completed, and its usage is recorded once."""
    client, runs = gateway
    waiting = await accepted(client, metadata={"a": "b"})
    assert (waiting.status, waiting.background, waiting.output) == ("queued", True, [])
    assert (await client.get(f"{PATH}/{waiting.id}")).json()["status"] == "queued"
    assert fakes.generator.prompts == []
    await work(fakes, runs)
    read = responses.response((await client.get(f"{PATH}/{waiting.id}")).json())
    assert (read.status, read.output_text, read.created_at) == ("completed", "At nine.", waiting.created_at)
    kinds = [event.type for event in await events_of(client, waiting.id)]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert usage_of(fakes) == [(7, 3)]
    assert fakes.response_jobs.jobs == []


async def test_the_events_of_a_response_are_streamed(gateway: Any, fakes: Any) -> None:
    """A client that requests a stream receives the events of the gateway that answers."""
    client, runs = gateway
    streaming = asyncio.ensure_future(
        client.post(PATH, json={"input": "When?", "background": True, "stream": True})
    )
    await eventually(lambda: bool(fakes.response_jobs.jobs))
    await work(fakes, runs)
    events = responses.events((await streaming).text)
    assert events[-1].response.status == "completed"
    assert await events_of(client, events[-1].response.id) == events


async def test_a_response_may_wait_long_in_the_queue(gateway: Any, fakes: Any, monkeypatch: Any) -> None:
    """A response that waits long in the queue does not fail, and its readers receive its events later."""
    monkeypatch.setattr(feed, "_SILENT_SECONDS", 0.01)
    client, runs = gateway
    waiting = await accepted(client)
    for _ in range(10):
        fakes.peers.record_heartbeat(fakes.peers.name)
    reading = asyncio.ensure_future(events_of(client, waiting.id))
    before = fakes.response_log.reads
    await eventually(lambda: fakes.response_log.reads > before + 5)
    assert (await client.get(f"{PATH}/{waiting.id}")).json()["status"] == "queued"
    await work(fakes, runs)
    assert (await reading)[-1].type == "response.completed"


async def test_a_background_response_must_be_stored(gateway: Any) -> None:
    """A background response with `store: false` is refused with 400, because no client could read it."""
    client, _ = gateway
    refused = await client.post(PATH, json={"input": "When?", "background": True, "store": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "background")


async def test_a_response_above_the_tenants_limit_is_refused(gateway: Any, fakes: Any) -> None:
    """A response above the tenant's limit is refused with 429, and is not stored."""
    client, _ = gateway
    fakes.response_jobs.limit = 1
    await accepted(client)
    refused = await client.post(PATH, json={"input": "When?", "background": True})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "15")
    [stored] = fakes.responses.kept.values()
    assert len(stored) == 1


@pytest.mark.parametrize("part", ["responses", "response_log", "response_jobs"])
async def test_a_background_response_without_nats_is_refused(gateway: Any, fakes: Any, part: str) -> None:
    """A background response is refused with 503 while NATS cannot be reached, and no job is queued."""
    client, _ = gateway
    getattr(fakes, part).failure = Unavailable("NATS cannot be reached.")
    assert (await client.post(PATH, json={"input": "When?", "background": True})).status_code == 503
    assert fakes.response_jobs.jobs == []


async def test_a_waiting_response_is_cancelled(gateway: Any, fakes: Any) -> None:
    """A response that is cancelled in the queue never reaches the model. A second cancellation changes nothing."""
    client, runs = gateway
    waiting = await accepted(client)
    for _ in range(2):
        answer = await client.post(f"{PATH}/{waiting.id}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    await work(fakes, runs)
    assert fakes.generator.prompts == []
    *first_events, last = await events_of(client, waiting.id)
    assert [event.type for event in first_events] == ["response.created", "response.queued"]
    assert (last.type, last.response.status, last.response.error) == ("response.failed", "cancelled", None)
    assert fakes.response_jobs.jobs == []


async def test_a_request_counts_once_in_the_quotas(fakes: Any, settings: Settings) -> None:
    """The quotas count a request once, when it is accepted. They count its tokens when it is answered."""
    limits = parse(b"tenants: {local: {requests_per_minute: 1, tokens_per_minute: 1000}}", "quotas.yaml")
    fakes.ledger = Ledger(lambda: limits)
    fakes.ledger.connected([fakes.ledger.replica])
    app, runs = build(settings, fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        waiting = await accepted(client)
        refused = await client.post(PATH, json={"input": "When?", "background": True})
        assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
        assert len(fakes.response_jobs.jobs) == 1
        await work(fakes, runs)
        assert (await client.get(f"{PATH}/{waiting.id}")).json()["status"] == "completed"
    [tally] = fakes.ledger._tallies["tenant"].values()
    used = {measure: meter.total(time.time()) for measure, meter in tally.meters.items() if not meter.empty}
    assert used == {Measure.REQUESTS: 1, Measure.TOKENS: 10}


async def test_the_tokens_count_for_the_api_key(fakes: Any, settings: Settings) -> None:
    """The quota of the API key counts the tokens of a background response, not the quota of a user."""
    limits = parse(b"defaults: {key: {tokens_per_minute: 1000}, user: {tokens_per_minute: 1000}}", "quotas.yaml")
    fakes.ledger = Ledger(lambda: limits)
    fakes.ledger.connected([fakes.ledger.replica])
    key, record = api_keys.create("ann", "local", roles=("ask",))
    fakes.keys.replace([record])
    app, runs = build(settings.model_copy(update={"auth": "keys"}), fakes.services())
    headers = {"authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        await accepted(client)
        await work(fakes, runs)
    [tally] = fakes.ledger._tallies["key"].values()
    assert tally.meters[Measure.TOKENS].total(time.time()) == 10
    assert not fakes.ledger._tallies["user"]


def usage_of(fakes: Any) -> list[tuple[int, int]]:
    """Return the tokens of each usage record of an answer."""
    usage = [json.loads(record.payload) for record in fakes.records.written if ".usage." in record.subject]
    return [
        (entry.get("input_tokens", 0), entry.get("output_tokens", 0)) for entry in usage if entry["route"] == PATH
    ]


def pause_model(fakes: Any) -> None:
    """Make the model stop after its first word."""
    fakes.generator.gate = asyncio.Event()
    begin, end = [Start(b"{}"), Delta(0, "At ")], [Finish(0, "stop"), Usage(7, 2)]
    fakes.generator.script = [begin, [Delta(0, "nine.")], end]


async def begun(fakes: Any, runs: BackgroundRuns) -> "asyncio.Task[None]":
    """Start to answer the next response, and wait for its first text."""
    taken = await fakes.response_jobs.take(0)
    working = asyncio.ensure_future(runs.run_job(taken))
    [log] = fakes.response_log.logs.values()
    await eventually(lambda: log[-1].last > 2)
    return working


async def test_a_running_response_is_cancelled(gateway: Any, fakes: Any) -> None:
    """The cancellation of a running response stops the model and keeps the text that it has produced."""
    client, runs = gateway
    pause_model(fakes)
    waiting = await accepted(client)
    working = await begun(fakes, runs)
    read = (await client.post(f"{PATH}/{waiting.id}/cancel")).json()
    assert (read["status"], read["output"][0]["content"][0]["text"]) == ("cancelled", "At ")
    await working
    assert fakes.generator.closed == 1
    assert (await client.get(f"{PATH}/{waiting.id}")).json() == read
    assert fakes.response_jobs.jobs == []
    last = (await events_of(client, waiting.id))[-1]
    assert (last.type, last.response.status) == ("response.failed", "cancelled")
    assert last.response == responses.response(read)
    assert len(usage_of(fakes)) == 1


async def test_a_running_response_is_deleted(gateway: Any, fakes: Any) -> None:
    """The deletion of a running response stops its answer and removes it."""
    client, runs = gateway
    pause_model(fakes)
    waiting = await accepted(client)
    working = await begun(fakes, runs)
    assert (await client.delete(f"{PATH}/{waiting.id}")).status_code == 200
    await working
    assert (await client.get(f"{PATH}/{waiting.id}")).status_code == 404
    assert fakes.response_jobs.jobs == []


async def test_an_attempt_without_text_is_repeated_twice(gateway: Any, fakes: Any) -> None:
    """An attempt that ended without any text is repeated at most twice. Then the response fails."""
    client, runs = gateway
    for attempts in (2, 3):
        waiting = await accepted(client)
        for number in range(attempts):
            last = await fakes.response_log.last(LOCAL, waiting.id, Deadline.after(60))
            mark = Entry(f"job.dead.{number}", 2, 1)
            await fakes.response_log.append(LOCAL, waiting.id, mark, last.position, Deadline.after(60))
        await work(fakes, runs)
        status = "completed" if attempts < 3 else "failed"
        assert (await client.get(f"{PATH}/{waiting.id}")).json()["status"] == status
        assert (await events_of(client, waiting.id))[-1].type == f"response.{status}"


@pytest.mark.parametrize("only_quotes", [False, True])
async def test_an_interrupted_answer_continues_only_with_quotes(
    gateway: Any, fakes: Any, only_quotes: bool
) -> None:
    """An interrupted answer continues if the model only quotes, which repeats the text. Otherwise it fails."""
    client, runs = gateway
    pause_model(fakes)
    fakes.generator.only_quotes = only_quotes
    waiting = await accepted(client)
    working = await begun(fakes, runs)
    working.cancel()
    await asyncio.wait((working,))
    before = await events_so_far(fakes)
    fakes.generator.gate.set()
    await work(fakes, runs)
    read = (await client.get(f"{PATH}/{waiting.id}")).json()
    text = read["output"][0]["content"][0]["text"]
    assert (read["status"], text) == (("completed", "At nine.") if only_quotes else ("failed", "At "))
    events = await events_of(client, waiting.id)
    assert events[: len(before)] == before
    assert events[-1].type == f"response.{read['status']}"
    assert len(fakes.generator.prompts) == (2 if only_quotes else 1)
    assert usage_of(fakes) == [(7, 2) if only_quotes else (0, 0)]


async def events_so_far(fakes: Any) -> list[Any]:
    [log] = fakes.response_log.logs.values()
    return responses.events(b"".join(entry.data for entry in log).decode())


async def test_a_resumed_gateway_adds_no_events(gateway: Any, fakes: Any) -> None:
    """A gateway that was suspended adds no events after another gateway has ended the response."""
    client, runs = gateway
    pause_model(fakes)
    waiting = await accepted(client)
    working = await begun(fakes, runs)
    fakes.response_jobs.taken.clear()
    taken = replace(await fakes.response_jobs.take(0))
    await runs.run_job(taken)
    fakes.response_jobs.jobs.append(taken.job)
    fakes.response_jobs.taken.add(taken.job.name)
    fakes.generator.gate.set()
    await working
    events = await events_of(client, waiting.id)
    assert events[-1].type == "response.failed"
    assert (await client.get(f"{PATH}/{waiting.id}")).json()["status"] == "failed"

"""The stored events of responses: the log has all events that clients receive, and any gateway can read it."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from causeway_testing.gateway.application import FakeResponses
from causeway_testing.gateway.response_log import FakeResponseLog
from causeway_testing.servers import eventually
from gateway.domain import Action, Delta, Detector, Detectors, Finish, Start, Usage
from gateway.domain.response_log import Entry
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.response_runs import feed
from gateway.settings import Settings
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge, Unavailable
from servicekit.principal import LOCAL
from starlette.types import ASGIApp

PATH = "/v1/responses"
SEARCH = {"type": "file_search", "vector_store_ids": ["docs"]}


def soon() -> Deadline:
    return Deadline.after(60)


def request(method: str, path: str, query: bytes = b"") -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    headers = [(b"content-type", b"application/json"), (b"host", b"gateway")]
    scope = {"type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": path}
    return scope | {"query_string": query, "headers": headers}


class LeavingClients:
    """Clients that leave when they have received the first event.

    Args:
        app: The gateway.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._incoming: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(self, send: Any, **body: Any) -> None:
        """Serve a request."""
        await self._incoming.put({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        await self._app(request("POST", PATH), self._incoming.get, send)

    async def read(self, name: str) -> "asyncio.Task[None]":
        """Read the events of a response, and leave after the first events. Return the running request."""
        sent: asyncio.Queue[Any] = asyncio.Queue()
        scope = request("GET", f"{PATH}/{name}", b"stream=true")
        serving = asyncio.ensure_future(self._app(scope, self._incoming.get, sent.put))
        while not (await asyncio.wait_for(sent.get(), 30)).get("body"):
            pass
        await self._incoming.put({"type": "http.disconnect"})
        return serving

    async def __call__(self, **body: Any) -> tuple[str, "asyncio.Task[None]"]:
        """Post a request, and leave after the first bytes. Return these bytes and the running request."""
        sent: asyncio.Queue[Any] = asyncio.Queue()
        serving = asyncio.ensure_future(self.serve(sent.put, **body))
        received = b""
        while not received:
            received = (await asyncio.wait_for(sent.get(), 30)).get("body", b"")
        await self._incoming.put({"type": "http.disconnect"})
        return received.decode(), serving


@pytest.fixture
def leaving(fakes: Any, settings: Settings) -> LeavingClients:
    begin, end = [Start(b"{}"), Delta(0, "At ")], [Finish(0, "stop"), Usage(7, 2)]
    fakes.generator.script = [begin, [Delta(0, "nine.")], end]
    return LeavingClients(build_app(settings, fakes.services()))


@pytest.mark.parametrize("room", [64, 256 * 1024])
async def test_sent_events_are_read_again(client: httpx.AsyncClient, monkeypatch: Any, room: int) -> None:
    """The stored events are read after any number, byte for byte, even if the log exceeds the reader's buffer."""
    monkeypatch.setattr(feed, "_FEED_BYTES", room)
    sent = (await client.post(PATH, json={"input": "When?", "stream": True, "tools": [SEARCH]})).text
    events = responses.events(sent)
    name = events[-1].response.id
    pieces = [f"{block}\n\n" for block in sent.split("\n\n")[:-1]]
    for after in range(-1, len(events)):
        query = {"stream": "true", "starting_after": str(after)}
        assert (await client.get(f"{PATH}/{name}", params=query)).text == "".join(pieces[after + 1 :])
    header = {"last-event-id": "3"}
    again = await client.get(f"{PATH}/{name}", params={"stream": "true"}, headers=header)
    assert again.text == "".join(pieces[4:])
    assert again.headers["content-type"].startswith("text/event-stream")


async def test_a_response_without_a_stream_has_events(client: httpx.AsyncClient) -> None:
    """The events of a response without a stream are stored as for a streamed response."""
    answer = (await client.post(PATH, json={"input": "When?"})).json()
    events = responses.events((await client.get(f"{PATH}/{answer['id']}", params={"stream": "true"})).text)
    assert events[-1].response == responses.response(answer)


async def test_events_are_written_before_they_are_sent(leaving: LeavingClients, fakes: Any) -> None:
    """Each byte is in the log before the client receives it."""
    fakes.generator.script = fakes.generator.words(*"abcdefgh")
    received = b""

    async def check(message: Any) -> None:
        nonlocal received
        received += message.get("body", b"")
        [log] = fakes.response_log.logs.values()
        assert b"".join(entry.data for entry in log).startswith(received)

    await leaving.serve(check, input="When?", stream=True)
    [log] = fakes.response_log.logs.values()
    assert b"".join(entry.data for entry in log) == received
    assert [entry.ended for entry in log] == [*([False] * (len(log) - 1)), True]
    numbers = [(entry.first, entry.last) for entry in log]
    assert [first for first, _ in numbers] == [0, *(last + 1 for _, last in numbers[:-1])]


async def test_findings_are_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """The log has no findings, because findings contain the redacted words. The client receives them."""
    fakes.generator.script = fakes.generator.words("It is ", "secret", ".")
    fakes.policy = Detectors(output=(Detector("words", Action.REDACT),))
    body = {"input": "Is it?", "stream": True, "detectors": {"output": {"words": {}}}}
    sent = (await client.post(PATH, json=body)).text
    assert '"detections"' in sent
    events = responses.events(sent)
    read = (await client.get(f"{PATH}/{events[-1].response.id}", params={"stream": "true"})).text
    assert len(responses.events(read)) == len(events)
    assert '"detections"' not in read
    assert "secret" not in read


async def test_an_answer_without_the_log_is_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """If the log cannot be reached, the client gets the answer, and the response is marked as not stored."""
    fakes.response_log.failure = Unavailable("The log of responses cannot be reached.")
    for stream in (False, True):
        answer = await client.post(PATH, json={"input": "When?", "stream": stream})
        last = responses.events(answer.text)[-1].response.model_dump() if stream else answer.json()
        assert last["store"] is False
        assert (await client.get(f"{PATH}/{last['id']}")).status_code == 404


async def test_a_stored_answer_continues_without_its_client(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any
) -> None:
    """A stored answer continues after its client has left, and its usage is recorded once. Other answers end."""
    for store in (True, False):
        fakes.generator.gate = asyncio.Event()
        fakes.generator.closed = 0
        received, serving = await leaving(input="When?", stream=True, store=store)
        name = responses.events(received)[0].response.id
        if store:
            for _ in range(20):
                await asyncio.sleep(0)
            assert not serving.done()
            assert (await client.get(f"{PATH}/{name}")).json()["status"] == "in_progress"
            fakes.generator.gate.set()
            await serving
            read = await client.get(f"{PATH}/{name}")
            response = read.json()
            assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", "At nine.")
            usage = [record for record in fakes.records.written if record.subject.startswith("causeway.usage")]
            assert len(usage) == 1
        else:
            await serving
            assert (await client.get(f"{PATH}/{name}")).status_code == 404


async def test_a_running_response_is_followed(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any
) -> None:
    """A reader receives the stored and the later events over one connection."""
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id
    reading = asyncio.ensure_future(client.get(f"{PATH}/{name}", params={"stream": "true"}))
    await eventually(lambda: any(fakes.response_log.watchers.values()))
    fakes.generator.gate.set()
    await serving
    events = responses.events((await reading).text)
    assert events[-1].response.status == "completed"
    assert not any(fakes.response_log.watchers.values())


async def test_readers_share_a_subscription(leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any) -> None:
    """Readers of a response share a subscription, and the metrics count both. An ended response has none."""
    fakes.generator.gate = asyncio.Event()

    async def metrics() -> tuple[str, str]:
        lines = dict(line.rsplit(" ", 1) for line in (await client.get("/metrics")).text.splitlines())
        return lines["causeway_responses_readers"], lines["causeway_responses_followed"]

    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id
    reading = [asyncio.ensure_future(client.get(f"{PATH}/{name}?stream=true")) for _ in range(3)]
    async with asyncio.timeout(30):
        while await metrics() != ("3.0", "1.0"):  # noqa: ASYNC110  # only visible from outside
            await asyncio.sleep(0.01)
    fakes.generator.gate.set()
    await serving
    [first, *others] = [(await task).text for task in reading]
    assert others == [first, first]
    assert await metrics() == ("0.0", "0.0")
    assert (await client.get(f"{PATH}/{name}?stream=true")).text == first


async def test_the_subscription_ends_with_its_reader(leaving: LeavingClients, fakes: Any) -> None:
    """The subscription ends when its reader leaves."""
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    await (await leaving.read(responses.events(received)[0].response.id))
    assert not any(fakes.response_log.watchers.values())
    fakes.generator.gate.set()
    await serving


async def test_a_read_ends_the_response_of_a_dead_gateway(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any
) -> None:
    """A read of a response whose gateway died marks it as failed. That gateway adds nothing if it returns."""
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    begun = responses.events(received)
    name = begun[0].response.id
    [log] = fakes.response_log.logs.values()
    log[-1] = replace(log[-1], writer="dead.1")
    assert (await client.get(f"{PATH}/{name}")).json()["status"] == "in_progress"
    for _ in range(5):
        fakes.peers.record_heartbeat(fakes.peers.name)
    read = (await client.get(f"{PATH}/{name}")).json()
    assert (read["status"], read["error"]["code"]) == ("failed", "server_error")
    fakes.generator.gate.set()
    await serving
    events = responses.events((await client.get(f"{PATH}/{name}", params={"stream": "true"})).text)
    assert events[-1].type == "response.failed"
    assert events[: len(begun)] == begun
    assert (await client.get(f"{PATH}/{name}")).json() == read


async def test_a_stream_ends_the_response_of_a_dead_gateway(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any, monkeypatch: Any
) -> None:
    """A stream that waits for a gateway that died ends with `response.failed`."""
    monkeypatch.setattr(feed, "_SILENT_SECONDS", 0.05)
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id
    [log] = fakes.response_log.logs.values()
    log[-1] = replace(log[-1], writer="dead.1")
    reading = asyncio.ensure_future(client.get(f"{PATH}/{name}", params={"stream": "true"}))
    await eventually(lambda: any(fakes.response_log.watchers.values()))
    for _ in range(5):
        fakes.peers.record_heartbeat(fakes.peers.name)
    assert responses.events((await reading).text)[-1].type == "response.failed"
    fakes.generator.gate.set()
    await serving


async def test_a_silent_log_causes_few_reads_of_the_response(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any, monkeypatch: Any
) -> None:
    """While a live gateway is silent, a reader of its log seldom reads the stored response."""
    monkeypatch.setattr(feed, "_SILENT_SECONDS", 0.01)
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id
    reads: Counter[str] = Counter()

    def count_reads(store: type) -> None:
        read: Any = store.read  # type: ignore[attr-defined]

        def counting(*args: Any) -> Any:
            reads[store.__name__] += 1
            return read(*args)

        monkeypatch.setattr(store, "read", counting)

    count_reads(FakeResponseLog)
    count_reads(FakeResponses)
    reading = asyncio.ensure_future(client.get(f"{PATH}/{name}", params={"stream": "true"}))
    await eventually(lambda: reads["FakeResponseLog"] > 20)
    assert reads["FakeResponses"] <= 4
    fakes.generator.gate.set()
    await serving
    assert responses.events((await reading).text)[-1].type == "response.completed"


async def test_an_unexpected_exception_ends_the_readers(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any, monkeypatch: Any
) -> None:
    """The stream of a reader ends if an unexpected exception stops the feed after its first events."""
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id

    async def failing(_feed: feed.Feed) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(feed.Feed, "_next", failing)
    text = (await client.get(f"{PATH}/{name}", params={"stream": "true"})).text
    assert text
    assert "response.completed" not in text
    monkeypatch.undo()
    fakes.generator.gate.set()
    await serving
    events = responses.events((await client.get(f"{PATH}/{name}", params={"stream": "true"})).text)
    assert events[-1].type == "response.completed"


async def test_a_running_response_is_deleted(
    leaving: LeavingClients, client: httpx.AsyncClient, fakes: Any
) -> None:
    """The deletion of a running response stops its answer and empties its log."""
    fakes.generator.gate = asyncio.Event()
    received, serving = await leaving(input="When?", stream=True)
    name = responses.events(received)[0].response.id
    assert (await client.delete(f"{PATH}/{name}")).status_code == 200
    fakes.generator.gate.set()
    await serving
    assert (await client.get(f"{PATH}/{name}")).status_code == 404
    [log] = fakes.response_log.logs.values()
    assert [(entry.deleted, entry.data) for entry in log] == [(True, b"")]


async def test_a_response_with_a_hidden_document_is_not_found(client: httpx.AsyncClient, fakes: Any) -> None:
    """A response is not found when the reader may no longer see one of its documents."""
    answer = (await client.post(PATH, json={"input": "When?", "tools": [SEARCH]})).json()
    path = f"{PATH}/{answer['id']}"
    assert (await client.get(path)).status_code == 200
    fakes.retriever.indexes["docs"] = fakes.retriever.indexes["docs"][1:]
    for gone in (
        await client.get(path),
        await client.get(path, params={"stream": "true"}),
        await client.get(f"{path}/input_items"),
    ):
        assert gone.status_code == 404


async def test_a_profile_may_keep_responses_with_hidden_documents(
    fakes: Any, tmp_path: Any, settings: Settings
) -> None:
    """With `on_revoked: keep`, a profile returns responses even if the reader may no longer see their documents."""
    file = tmp_path / "frontends.yaml"
    file.write_text("frontends:\n  - {name: k, mount: k, on_revoked: keep, index: docs}\n")
    fakes.frontends = FrontendsFile(file)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = (await client.post(f"/k{PATH}", json={"input": "When?", "tools": [SEARCH]})).json()
        fakes.retriever.indexes["docs"] = []
        assert (await client.get(f"/k{PATH}/{answer['id']}")).status_code == 200
        assert (await client.get(f"{PATH}/{answer['id']}")).status_code == 404


async def test_a_log_with_missing_events_is_refused(client: httpx.AsyncClient, fakes: Any) -> None:
    """Reading a log with missing events is refused with 400."""
    answer = (await client.post(PATH, json={"input": "When?"})).json()
    [log] = fakes.response_log.logs.values()
    del log[0]
    path, query = f"{PATH}/{answer['id']}", {"stream": "true"}
    refused = await client.get(path, params=query)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "starting_after")
    rest = await client.get(path, params=query | {"starting_after": str(log[0].first - 1)})
    assert rest.text.encode() == b"".join(entry.data for entry in log)
    fakes.response_log.logs.clear()
    assert (await client.get(path, params=query)).status_code == 400
    assert (await client.get(path)).status_code == 200


async def test_a_reader_restores_the_last_event(client: httpx.AsyncClient, fakes: Any, monkeypatch: Any) -> None:
    """A reader restores the last event if the gateway died between storing the response and writing the event."""
    monkeypatch.setattr(feed, "_SILENT_SECONDS", 0.05)
    answer = (await client.post(PATH, json={"input": "When?"})).json()
    [log] = fakes.response_log.logs.values()
    whole = b"".join(entry.data for entry in log)
    end = log.pop()
    log[-1] = replace(log[-1], writer="dead.1")
    reading = asyncio.ensure_future(client.get(f"{PATH}/{answer['id']}", params={"stream": "true"}))
    read = (await reading).text.encode()
    assert read == whole
    assert log[-1].equals_except_position(replace(end, writer=log[-1].writer, data=log[-1].data))
    assert await fakes.response_log.last(LOCAL, answer["id"], soon()) == log[-1]
    assert Entry("", *(end.first, end.last)).last == log[-1].last


async def test_concurrent_readers_share_one_read_of_the_log(client: httpx.AsyncClient, fakes: Any) -> None:
    """The log of an ended response is read once for all readers. A deleted response is not found."""
    sent = (await client.post(PATH, json={"input": "When?", "stream": True})).text
    name = responses.events(sent)[-1].response.id
    query = {"stream": "true", "starting_after": "-1"}
    answers = await asyncio.gather(*(client.get(f"{PATH}/{name}", params=query) for _ in range(8)))
    answers.append(await client.get(f"{PATH}/{name}", params=query))
    assert [answer.text for answer in answers] == [sent] * 9
    [log] = fakes.response_log.logs.values()
    assert fakes.response_log.reads == -(-len(log) // 3)  # the fake reads three entries at once
    await client.delete(f"{PATH}/{name}")
    assert (await client.get(f"{PATH}/{name}", params=query)).status_code == 404


async def test_the_cache_of_ended_logs_is_bounded(client: httpx.AsyncClient, fakes: Any, monkeypatch: Any) -> None:
    """The cache drops the least recently read log when it is full."""
    texts = [(await client.post(PATH, json={"input": "When?", "stream": True})).text for _ in range(3)]
    monkeypatch.setattr(feed, "_CACHE_BYTES", 2 * max(len(text) for text in texts))
    names = [responses.events(text)[-1].response.id for text in texts]

    async def reads(number: int) -> int:
        before = fakes.response_log.reads
        assert (await client.get(f"{PATH}/{names[number]}?stream=true")).text == texts[number]
        return int(fakes.response_log.reads - before)

    assert [await reads(number) > 0 for number in (0, 1, 0, 2, 0, 1)] == [True, True, False, True, False, True]


async def test_a_large_last_event_is_read_from_the_response(
    client: httpx.AsyncClient, fakes: Any, monkeypatch: Any
) -> None:
    """A last event that is too large for the log is read from the stored response."""
    append = FakeResponseLog.append

    async def small(
        log: FakeResponseLog, principal: Any, name: str, entry: Entry, after: int, deadline: Deadline
    ) -> int:
        if entry.ended and entry.data:
            raise PayloadTooLarge("The response is too large to be stored. Set store to false.", field="store")
        return await append(log, principal, name, entry, after, deadline)

    monkeypatch.setattr(FakeResponseLog, "append", small)
    sent = (await client.post(PATH, json={"input": "When?", "stream": True})).text
    events = responses.events(sent)
    for after in (-1, len(events) - 2):
        query = {"stream": "true", "starting_after": str(after)}
        again = (await client.get(f"{PATH}/{events[-1].response.id}", params=query)).text
        assert again.count("\n\n") == len(events) - after - 1
        assert sent.endswith(again)


@pytest.mark.parametrize(
    "query",
    [
        "stream=maybe",
        *(f"stream=true&starting_after={value}" for value in ("x", "-2", "%2B3", "%203", "1_0", "9999999999")),
    ],
)
async def test_an_invalid_query_is_refused(client: httpx.AsyncClient, query: str) -> None:
    """An invalid query is refused with 400 or 422. It does not get the response instead of its events."""
    name = (await client.post(PATH, json={"input": "When?"})).json()["id"]
    answer = await client.get(f"{PATH}/{name}?{query}")
    assert answer.status_code in (400, 422)
    assert "error" in answer.json()
    assert (await client.head(f"{PATH}/{name}?stream=true")).status_code == 200

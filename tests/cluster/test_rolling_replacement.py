"""The services are replaced one after another while 32 clients send requests. No request fails."""

import asyncio
import collections
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(3600)

INDEX = "cluster-rolling"
# Stores are left out: with one server, an update of NATS or Qdrant is a short outage (docs/deploy.md).
REPLACED = ("generator", "guardrails", "retriever", "ingest", "gateway")
CLIENTS = 8  # clients of each kind
_SUCCESS_STATES = ("succeeded", "unchanged")
_TRIES = 200


class Load:
    """Clients of four kinds: unary answers, streams, documents as files and as texts, and watches of jobs.

    Args:
        asker: The access to the platform.

    Attributes:
        outcomes: The number of requests by result. `ok` is the expected one.
        jobs: The jobs of accepted documents by name.
    """

    def __init__(self, asker: Any) -> None:
        self._asker = asker
        self._is_running = True
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.jobs: dict[str, str] = {}

    async def during(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run all clients while `work` runs, and wait until their last requests have ended."""
        kinds = (self._ask, self._stream, self._index, self._watch)
        clients = [asyncio.create_task(self._run(kind, n)) for kind in kinds for n in range(CLIENTS)]
        await asyncio.sleep(2)
        try:
            await work()
            await asyncio.sleep(2)
        finally:
            self._is_running = False
            await asyncio.gather(*clients)

    async def _run(self, kind: Callable[[httpx.AsyncClient, str], Awaitable[str]], client: int) -> None:
        turn = 0
        while self._is_running:
            turn += 1
            try:
                async with self._asker.client() as http:
                    outcome = await kind(http, f"{kind.__name__[1:]}-{client}-{turn}")
            except httpx.TransportError as error:
                outcome = type(error).__name__
            self.outcomes[outcome if outcome == "ok" else f"{kind.__name__[1:]}: {outcome}"] += 1
            await asyncio.sleep(0.1)

    def _question(self) -> dict[str, Any]:
        overrides = {"index": INDEX, "top": 3}
        return {
            "messages": [{"role": "user", "content": "How deep is berth 1?"}],
            "context": {"overrides": overrides},
        }

    async def _ask(self, http: httpx.AsyncClient, _: str) -> str:
        answer = await http.post("/chat", json=self._question())
        return "ok" if answer.is_success and answer.json()["message"]["content"] else str(answer.status_code)

    async def _stream(self, http: httpx.AsyncClient, _: str) -> str:
        async with http.stream("POST", "/chat/stream", json=self._question()) as answer:
            if answer.status_code != httpx.codes.OK:
                return str(answer.status_code)
            lines = [json.loads(line) async for line in answer.aiter_lines()]
        return "ok" if "error" not in lines[-1] and "thoughts" in lines[-1]["context"] else "broken"

    async def _index(self, http: httpx.AsyncClient, name: str) -> str:
        """Store a text. The request waits for the end of the job, but a server that stops returns the job's id
        instead.
        """
        body = {"index_name": INDEX, "documents": [{"text": f"The berth {name} is deep.", "doc_id": name}]}
        answer = await http.post("/index", json=body)
        if answer.status_code == httpx.codes.ACCEPTED:
            self.jobs[name] = answer.json()["job"]["id"]
        return "ok" if answer.is_success else str(answer.status_code)

    async def _watch(self, http: httpx.AsyncClient, name: str) -> str:
        """Upload a file, and read the events of its job to the end. Reconnect if a server that stops ends the
        stream.
        """
        file = {"file": (f"{name}.md", f"# Berth\n\nThe berth {name} is deep.\n".encode())}
        answer = await http.post("/documents", data={"index": INDEX}, files=file)
        if answer.status_code != httpx.codes.ACCEPTED:
            return str(answer.status_code)
        job = self.jobs[name] = answer.json()["jobs"][0]["id"]
        last_id = ""
        for _ in range(_TRIES):
            status, last, last_id = await self._read_events(job, last_id)
            if last != "reconnect":
                return "ok" if status == httpx.codes.NO_CONTENT or last == "end" else f"{status} {last}"
        return "never ended"

    async def _read_events(self, job: str, last_id: str) -> tuple[int, str, str]:
        """Return the status of one stream of events, its last event, and its last id."""
        last, headers = "", {"last-event-id": last_id}
        async with (
            self._asker.client() as http,
            http.stream("GET", f"/jobs/{job}/events", headers=headers) as events,
        ):
            async for line in events.aiter_lines():
                field, _, value = line.partition(": ")
                last = value if field == "event" else last
                last_id = value if field == "id" else last_id
        return events.status_code, last, last_id


async def test_every_service_is_replaced_under_load(asker: Any, pods: Any) -> None:
    """No request fails, each accepted document is stored exactly once, and no job becomes a dead letter."""
    assert (
        await asker.wait_for_end(await asker.upload(INDEX, "first.md", "# Berth\n\nThe berth is deep.\n"))
        in _SUCCESS_STATES
    )
    load = Load(asker)

    async def replace() -> None:
        for service in REPLACED:
            if len(pods.of(service)) == 1:  # the retriever with the embedded store, which can have only one pod
                continue
            await asyncio.to_thread(pods.replace, service)
            await asker.wait_until_ready()

    await load.during(replace)
    assert set(load.outcomes) == {"ok"}, load.outcomes
    for job in load.jobs.values():
        assert await asker.wait_for_end(job) in _SUCCESS_STATES
    async with asker.client() as http:
        found = (await http.get("/documents", params={"index": INDEX, "limit": 1000})).json()["documents"]
        dead = (await http.get("/jobs/dead")).json()["jobs"]
    names = [each["sourcefile"] or each["document_id"] for each in found]
    assert len(names) == len(set(names))
    assert not dead

"""Jobs on a stack with faults: each accepted document is stored completely and exactly once."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import free_ports

LONG = "\n\n".join(
    f"## Part {n}\n\n" + " ".join(f"The lamp of buoy {n} flashes every {n + 2} seconds." for _ in range(12))
    for n in range(250)
).encode()
FILES = [("file", (f"{n}.md", f"# Berth {n}\n\nBerth {n} is {n + 5} metres deep.\n".encode())) for n in range(150)]


async def names(stack: Any, index: str) -> list[str]:
    """Return the file names of an index's documents. A duplicate document is listed twice."""
    response = await stack.http.get("/documents", params={"index": index, "limit": 1000})
    if response.status_code == 404:
        return []
    return [each["sourcefile"] for each in response.raise_for_status().json()["documents"]]


async def submit(stack: Any, index: str, files: Any) -> list[str]:
    """Upload files, and return the ids of their jobs."""
    response = await stack.http.post("/documents", data={"index": index}, files=files)
    return [job["id"] for job in response.raise_for_status().json()["jobs"]]


async def wait_until(stack: Any, job_id: str, condition: Any, within: float = 60) -> Any:
    """Wait until a job meets a condition, and return it."""
    end = time.monotonic() + within
    while True:
        job = (await stack.http.get(f"/jobs/{job_id}")).raise_for_status().json()
        if condition(job):
            return job
        assert time.monotonic() < end, job
        await asyncio.sleep(0.02)


async def test_many_files_while_everything_dies_once(stack: Any) -> None:
    """Although services are killed, each file becomes exactly one document. A repeated upload changes nothing."""
    jobs = await submit(stack, "berths", FILES)
    for service in ("ingest", "retriever", "nats", "ingest"):
        await asyncio.sleep(1)
        stack.kill(service)
    states = {(await stack.wait_for_job(job))["state"] for job in jobs}
    assert states <= {"succeeded", "unchanged"}
    await stack.wait_until_ready()
    expected = sorted(name for _, (name, _) in FILES)
    assert sorted(await names(stack, "berths")) == expected
    again = await submit(stack, "berths", FILES[:20])
    assert {(await stack.wait_for_job(job))["state"] for job in again} == {"unchanged"}
    assert sorted(await names(stack, "berths")) == expected
    assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []


async def test_a_cancelled_job_stores_nothing(stack: Any) -> None:
    """A running or waiting job that is cancelled leaves neither a document nor an original. A later upload can use
    its file name.
    """
    [running] = await submit(stack, "buoys", {"file": ("buoys.md", LONG)})
    await wait_until(stack, running, lambda job: job["state"] == "indexing" and job["percent"] > 12)
    waiting = await submit(stack, "buoys", FILES[:12])
    for job in (running, waiting[-1]):
        assert (await stack.http.post(f"/jobs/{job}/cancel")).json()["state"] == "cancelled"
    assert all([(await stack.wait_for_job(job))["state"] == "succeeded" for job in waiting[:-1]])
    await asyncio.sleep(1)
    assert sorted(await names(stack, "buoys")) == sorted(name for _, (name, _) in FILES[:11])
    assert (await stack.http.get("/content/buoys.md", params={"index": "buoys"})).status_code == 404
    for job in (running, waiting[-1]):
        assert (await stack.http.get(f"/jobs/{job}")).json()["state"] == "cancelled"
    assert (await stack.ingest("buoys", "buoys.md", b"# Buoys\n\nNone.\n"))["state"] == "succeeded"


async def test_a_new_version_replaces_the_old_one_without_a_gap(stack: Any) -> None:
    """While a document is replaced, each search finds exactly one of its versions."""
    assert (await stack.ingest("tides", "quay.md", b"# Quay\n\nThe quay has 0 cranes.\n"))["state"] == "succeeded"
    stop = asyncio.Event()
    found: list[int] = []

    async def search() -> None:
        while not stop.is_set():
            body = {"index_name": "tides", "query": "How many cranes does the quay have?"}
            response = await stack.http.post("/retrieve", json=body)
            results = response.raise_for_status().json()["results"]
            found.append(sum("cranes" in each["text"] for each in results))

    searching = asyncio.create_task(search())
    for number in range(1, 8):
        job = await stack.ingest("tides", "quay.md", f"# Quay\n\nThe quay has {number} cranes.\n".encode())
        assert job["state"] == "succeeded"
    stop.set()
    await searching
    assert len(found) > 20
    assert set(found) == {1}


async def test_an_unavailable_server_costs_no_attempt(start_stack: Any, tmp_path: Path) -> None:
    """While the retriever is frozen, the state of the job shows that it waits. It succeeds afterwards, although
    only one attempt is allowed.
    """
    async with start_stack(tmp_path / "data", CAUSEWAY_INGEST_MAX_ATTEMPTS="1") as stack:
        assert (await stack.ingest())["state"] == "succeeded"
        stack.kill("retriever", signal.SIGSTOP)
        [job] = await submit(stack, "tides", {"file": ("late.md", b"# Late\n\nLow water is at noon.\n")})
        waiting = await wait_until(stack, job, lambda job: job["stage"] == "waiting")
        assert waiting["error"]["reason"] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        await asyncio.sleep(32)
        assert (await stack.http.get(f"/jobs/{job}")).json()["stage"] == "waiting"
        stack.kill("retriever", signal.SIGCONT)
        finished = await stack.wait_for_job(job)
        assert (finished["state"], finished["waiting_since"], finished["error"]) == ("succeeded", None, None)


@pytest.fixture
def embedding(tmp_path: Path) -> tuple[int, dict[str, str]]:
    """Return the port of an embedding server that the test starts later, and the environment variables of a stack
    that needs the server.
    """
    (port,) = free_ports(1)
    file = tmp_path / "embeddings.yaml"
    model = {"name": "e5", "kind": "openai", "url": f"http://127.0.0.1:{port}/v1", "model": "e5", "dimension": 256}
    file.write_text(json.dumps({"models": [{**model, "tries": 1}]}))  # JSON is YAML
    environment = {"CAUSEWAY_EMBEDDINGS_FILE": str(file), "CAUSEWAY_INGEST_RETRY_SECONDS": "0.2"}
    return port, environment | {"CAUSEWAY_INGEST_MAX_ATTEMPTS": "1"}


async def test_an_embedding_server_that_is_away_for_long(start_stack: Any, tmp_path: Path, embedding: Any) -> None:
    """During a long outage of the embedding server, jobs wait and show the reason. They succeed afterwards,
    although only one attempt is allowed. A waiting job can be cancelled.
    """
    port, environment = embedding
    async with start_stack(tmp_path / "data", **environment) as stack:
        jobs = await submit(stack, "tides", FILES[:4])
        begin = time.monotonic()
        for job in jobs:
            waiting = await wait_until(stack, job, lambda job: job["stage"] == "waiting")
            assert "'e5'" in waiting["error"]["message"]
        assert (await stack.http.post(f"/jobs/{jobs[0]}/cancel")).json()["state"] == "cancelled"
        await asyncio.sleep(begin + 33 - time.monotonic())
        assert {(await stack.http.get(f"/jobs/{job}")).json()["state"] for job in jobs[1:]} <= {"queued", "parsing"}
        server = ModelServer()
        await server.start(port=port)
        try:
            assert {(await stack.wait_for_job(job))["state"] for job in jobs[1:]} == {"succeeded"}
        finally:
            await server.stop()
        assert len(await names(stack, "tides")) == 3


async def test_a_failed_job_can_be_sent_again(start_stack: Any, tmp_path: Path, embedding: Any) -> None:
    """After a long outage, jobs become dead letters, and can be sent again. They do not replace newer versions."""
    port, environment = embedding
    environment["CAUSEWAY_INGEST_OUTAGE_SECONDS"] = "0.5"
    async with start_stack(tmp_path / "data", **environment) as stack:
        jobs = await submit(stack, "tides", FILES[:2])
        for job in jobs:
            assert (await stack.wait_for_job(job))["state"] == "failed"
        letters = (await stack.http.get("/jobs/dead")).json()["jobs"]
        assert {letter["id"] for letter in letters} == set(jobs)
        assert {letter["error"]["reason"] for letter in letters} == {"UNAVAILABLE"}
        server = ModelServer()
        await server.start(port=port)
        try:
            newer = await stack.ingest("tides", FILES[0][1][0], b"# Berth 0\n\nIt is closed.\n")
            assert newer["state"] == "succeeded"
            replayed = await stack.http.post("/jobs/dead/replay", json={"all": True})
            assert set(replayed.json()["replayed"]) == set(jobs)
            ended = [
                await wait_until(stack, job, lambda job: job["state"] in ("succeeded", "failed")) for job in jobs
            ]
            assert [job["state"] for job in ended] == ["failed", "succeeded"]
            assert ended[0]["error"]["reason"] == "STALE_GENERATION"
            assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []
            content = await stack.http.get(f"/content/{FILES[0][1][0]}", params={"index": "tides"})
            assert content.text == "# Berth 0\n\nIt is closed.\n"
        finally:
            await server.stop()

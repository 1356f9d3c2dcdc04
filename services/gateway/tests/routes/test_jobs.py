import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from gateway.domain.documents import Job, JobWarning, Upload
from gateway.ports.jobs import DeadLetter
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL, Principal


async def submit(fakes: Any, name: str = "a.md", index: str = "docs", principal: Principal = LOCAL) -> Job:
    job: Job = await fakes.ingest.submit(principal, Upload(index, name, b"x"), Deadline.after(5))
    return job


async def test_jobs_are_listed_in_pages(client: httpx.AsyncClient, fakes: Any) -> None:
    """Jobs are listed in pages, most recently changed first. The index and the state filter the list."""
    jobs = [await submit(fakes, name, index) for name, index in (("a", "docs"), ("b", "other"), ("c", "docs"))]
    await submit(fakes, "theirs", principal=Principal("another"))
    page = (await client.get("/jobs", params={"limit": 2})).json()
    assert [job["sourcefile"] for job in page["jobs"]] == ["c", "b"]
    rest = (await client.get("/jobs", params={"limit": 2, "page_token": page["next_page_token"]})).json()
    assert ([job["sourcefile"] for job in rest["jobs"]], rest["next_page_token"]) == (["a"], None)
    assert rest["jobs"][0] == (await client.get(f"/jobs/{jobs[0].id}")).json()
    fakes.jobs.change(LOCAL, replace(jobs[0], state="failed"))
    for filters, names in (({"state": "failed"}, ["a"]), ({"index": "docs"}, ["a", "c"])):
        found = (await client.get("/jobs", params=filters)).json()["jobs"]
        assert [job["sourcefile"] for job in found] == names


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": 1001}, {"state": "lost"}, {"index": "a/b"}, {"page_token": "x"}, {"limit": "x"}],
)
async def test_an_invalid_list_parameter_is_refused(client: httpx.AsyncClient, wrong: Any) -> None:
    """An invalid parameter of the list is refused with 400, and the error names the parameter."""
    response = await client.get("/jobs", params=wrong)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == next(iter(wrong))


@pytest.mark.parametrize(
    ("job", "percent", "stage"),
    [
        ({}, 0, "queued"),
        ({"waiting_since": "2026-01-01T00:00:00Z"}, 0, "waiting"),
        ({"state": "parsing", "progress": {"pages_done": 5, "pages_total": 10}}, 5, "parsing"),
        ({"state": "indexing", "progress": {"chunks_done": 0, "chunks_total": 4}}, 10, "indexing"),
        ({"state": "indexing", "progress": {"chunks_done": 4, "chunks_total": 4}}, 99, "indexing"),
        ({"state": "indexing", "progress": {"documents_done": 1, "documents_total": 2}}, 49, "indexing"),
        ({"state": "failed"}, 100, "failed"),
        ({"state": "succeeded"}, 100, "succeeded"),
    ],
)
async def test_the_progress_of_a_job(
    client: httpx.AsyncClient, fakes: Any, job: Any, percent: int, stage: str
) -> None:
    """A job reports its percentage and its stage. It reports 100 percent only at its end."""
    found = await submit(fakes)
    fakes.jobs.change(LOCAL, replace(found, **job))
    shown = (await client.get(f"/jobs/{found.id}")).json()
    assert (shown["percent"], shown["stage"]) == (percent, stage)
    assert shown["waiting_since"] == job.get("waiting_since")


async def test_a_job_has_warnings(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each warning has a reason, a message, and the page or the part of the document."""
    found = await submit(fakes)
    assert (await client.get(f"/jobs/{found.id}")).json()["warnings"] == []
    warned = (
        JobWarning("UNREADABLE_DOCUMENT", "No text.", 2),
        JobWarning("UNSUPPORTED_MEDIA", "A film.", 0, "a.mp4"),
    )
    fakes.jobs.change(LOCAL, replace(found, state="succeeded", warnings=warned, warning_count=2))
    shown = (await client.get(f"/jobs/{found.id}")).json()
    assert shown["warning_count"] == 2
    assert shown["warnings"] == [
        {"reason": "UNREADABLE_DOCUMENT", "message": "No text.", "page": 2, "part": None},
        {"reason": "UNSUPPORTED_MEDIA", "message": "A film.", "page": None, "part": "a.mp4"},
    ]


async def test_a_job_is_cancelled(client: httpx.AsyncClient, fakes: Any) -> None:
    """A cancellation returns the job, even a second time. An ended job gets the status 409, an unknown job 404."""
    job, done = await submit(fakes), await submit(fakes, "b.md")
    fakes.jobs.change(LOCAL, replace(done, state="succeeded"))
    for _ in range(2):
        response = await client.post(f"/jobs/{job.id}/cancel")
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")
    assert (await client.post(f"/jobs/{done.id}/cancel")).status_code == 409
    theirs = await submit(fakes, principal=Principal("another"))
    for unknown in ("none", theirs.id):
        assert (await client.post(f"/jobs/{unknown}/cancel")).status_code == 404
        assert (await client.get(f"/jobs/{unknown}/events")).status_code == 404


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, int, Any]]:
    kind, number = "", 0
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            number = int(value)
        elif name == "data":
            yield kind, number, json.loads(value)


async def test_the_stream_of_events_ends_with_the_job(http: httpx.AsyncClient, fakes: Any) -> None:
    """The stream has the current state, each change and the end."""
    job = await submit(fakes)
    found = []
    async with http.stream("GET", f"/jobs/{job.id}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        async for kind, _, shown in events(response):
            found.append((kind, shown["state"], shown["percent"]))
            await asyncio.sleep(0.15)
            following = {"queued": "indexing", "indexing": "succeeded"}.get(shown["state"])
            if following:
                fakes.jobs.change(LOCAL, replace(job, state=following))
    assert found == [("progress", "queued", 0), ("progress", "indexing", 10), ("end", "succeeded", 100)]


async def test_a_stopping_gateway_ends_streams_with_reconnect(
    http: httpx.AsyncClient, fakes: Any, draining: asyncio.Event
) -> None:
    """A stopping gateway ends the stream with `reconnect`. With its last event id, the client misses no event."""
    job = await submit(fakes)
    found = []
    async with http.stream("GET", f"/jobs/{job.id}/events") as response:
        async for kind, number, _ in events(response):
            found.append((kind, number))
            draining.set()
    (first, known), (last, _) = found
    assert (first, last) == ("progress", "reconnect")
    fakes.jobs.change(LOCAL, replace(job, state="succeeded"))
    async with http.stream("GET", f"/jobs/{job.id}/events", headers={"last-event-id": str(known)}) as response:
        assert [kind async for kind, _, _ in events(response)] == ["end"]


async def test_events_continue_after_the_last_event_id(http: httpx.AsyncClient, fakes: Any) -> None:
    """With Last-Event-ID, the stream has the later events.

    With an unknown id, it has the current state. After the last event, the status is 204.
    """
    job = await submit(fakes)
    fakes.jobs.change(LOCAL, replace(job, state="failed", error_reason="INTERNAL"))
    for known in ("1", "nonsense", ""):
        async with http.stream("GET", f"/jobs/{job.id}/events", headers={"last-event-id": known}) as response:
            [(kind, number, shown)] = [event async for event in events(response)]
        assert (kind, shown["error"]["reason"]) == ("end", "INTERNAL")
    ended = await http.get(f"/jobs/{job.id}/events", headers={"last-event-id": str(number)})
    assert (ended.status_code, ended.content) == (204, b"")


async def test_dead_letters_are_listed_and_replayed(client: httpx.AsyncClient, fakes: Any) -> None:
    """Dead letters are listed with their reasons, and replayed by id or all together."""
    jobs = [await submit(fakes, name) for name in "ab"]
    letter = DeadLetter("", "docs", "d", "", "INTERNAL", "It ended every worker.", 5, "2026-01-01T00:00:00Z")
    fakes.jobs.letters[LOCAL.tenant] = [replace(letter, job_id=job.id, sourcefile=job.sourcefile) for job in jobs]
    page = (await client.get("/jobs/dead", params={"limit": 1})).json()
    [shown] = page["jobs"]
    assert (shown["id"], shown["sourcefile"], shown["attempt"]) == (jobs[0].id, "a", 5)
    assert shown["error"] == {"reason": "INTERNAL", "message": "It ended every worker."}
    assert page["next_page_token"]
    response = await client.post("/jobs/dead/replay", json={"job_ids": [jobs[1].id, "none"]})
    assert response.json() == {"replayed": [jobs[1].id], "not_found": ["none"]}
    assert (await client.post("/jobs/dead/replay", json={"all": True})).json()["replayed"] == [jobs[0].id]
    assert (await client.get("/jobs/dead")).json() == {"jobs": [], "next_page_token": None}


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "{", "[]", "{}", '{"job_ids": []}', '{"job_ids": "a"}', '{"x": 1}'),
        '{"job_ids": ["a"], "all": true}',
        b'{"job_ids": ["\xff"]}',
    ],
)
async def test_an_invalid_replay_is_refused(client: httpx.AsyncClient, wrong: str | bytes) -> None:
    """A replay with neither ids nor `all`, or with both, is refused with 400."""
    headers = {"content-type": "application/json"}
    response = await client.post("/jobs/dead/replay", content=wrong, headers=headers)
    assert response.status_code == 400


async def test_lanes_are_listed(client: httpx.AsyncClient) -> None:
    """Lanes are listed with their numbers, jobs and places, in the order in which they fill."""
    for number in range(9):
        await client.post("/documents", data={"index": "docs"}, files={"file": (f"{number}.md", b"x")})
    lanes = (await client.get("/jobs/lanes")).json()["lanes"]
    assert [lane["lane"] for lane in lanes] == [1, 2, 3, 4]
    assert [lane["jobs"] for lane in lanes] == [8, 1, 0, 0]
    assert (lanes[0]["places"], lanes[-1]["places"]) == (8, None)

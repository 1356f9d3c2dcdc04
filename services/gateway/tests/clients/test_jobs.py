"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import nats.errors
import pytest
from causeway.ingest.v1 import ingest_pb2
from causeway_testing.gateway.answering import FakeIngest
from causeway_testing.gateway.jobs import FakeJobs
from causeway_testing.servers import nats_server
from gateway.clients.backlog import Backlog
from gateway.clients.ingest import STATES, NatsIngest
from gateway.clients.jobs import NatsJobs
from gateway.clients.nats_connection import NatsLink
from gateway.clients.reverse_reader import newest_first
from gateway.domain.documents import Job, Upload
from gateway.ports.documents import Ingest
from gateway.ports.jobs import DeadLetter, JobChange, Jobs, Replay
from nats.js import JetStreamContext
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest, NotFound, RateLimited
from servicekit.nats import GENERATION
from servicekit.original_store import NatsOriginalStore
from servicekit.principal import LOCAL, Principal

STRANGER = Principal("another tenant")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def soon() -> Deadline:
    return Deadline.after(120)


@dataclass
class Rig:
    """The tested port, the port that creates jobs, and the actions of a worker.

    Attributes:
        change: Set the state of a job, with a reason for an error, and mark the job as about to end.
        bury: Move a job to the dead letters.
    """

    jobs: Jobs
    ingest: Ingest
    change: Callable[..., Awaitable[None]]
    bury: Callable[[Job], Awaitable[None]]

    async def submit(self, name: str = "a.md", index: str = "docs", principal: Principal = LOCAL) -> Job:
        return await self.ingest.submit(principal, Upload(index, name, b"x"), soon())

    async def listed(self, principal: Principal = LOCAL, **filters: str) -> list[str]:
        page = await self.jobs.page(
            principal, **{"index": "", "state": "", "token": "", **filters}, count=100, deadline=soon()
        )
        assert not page.next_token
        return [job.sourcefile for job in page.jobs]


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[NatsLink]:
    async with nats_server(tmp_path / "nats") as url, NatsLink(url) as link:
        end = time.monotonic() + 60
        while await link.problem(Deadline.after(1)) is not None:
            assert time.monotonic() < end, "NATS did not become ready"
            await asyncio.sleep(0.02)
        yield link


def fake() -> Rig:
    ingest = FakeIngest()
    jobs = FakeJobs(ingest)

    async def change(job: Job, state: str, reason: str = "", *, committing: bool = False) -> None:
        jobs.change(LOCAL, replace(ingest.jobs[LOCAL.tenant, job.id], state=state, error_reason=reason, attempt=1))
        if committing:
            jobs.committing.add(job.id)

    async def bury(job: Job) -> None:
        letter = DeadLetter(
            job.id, job.index, job.document_id, job.sourcefile, "INTERNAL", "Größe: 5 %", 5, "2026-01-01T00:00:00Z"
        )
        jobs.letters.setdefault(LOCAL.tenant, []).insert(0, letter)

    return Rig(jobs, ingest, change, bury)


def real(link: NatsLink) -> Rig:
    async def change(job: Job, state: str, reason: str = "", *, committing: bool = False) -> None:
        bucket = (await link.ingest()).jobs
        entry = await bucket.get(keys.job_key(LOCAL.tenant, job.id))
        message = ingest_pb2.Job.FromString(entry.value or b"")
        message.state, message.attempt, message.committing = STATES[state], 1, committing
        message.ClearField("error")
        if reason:
            message.error.reason = reason
        await bucket.put(entry.key, message.SerializeToString())

    async def bury(job: Job) -> None:
        jetstream = (await link.ingest()).jetstream
        waiting = await jetstream.get_last_msg(keys.INGEST_STREAM, keys.ingest_jobs_of(LOCAL.tenant, job.index))
        assert waiting.seq is not None
        assert ingest_pb2.IngestJob.FromString(waiting.data or b"").job_id == job.id
        await jetstream.publish(
            keys.ingest_dead_subject(LOCAL.tenant, job.index),
            waiting.data or b"",
            headers={
                "Causeway-Job-Id": job.id,
                "Causeway-Reason": "INTERNAL",
                "Causeway-Message": "Gr%C3%B6%C3%9Fe: 5 %25",
                "Causeway-Attempts": "5",
                GENERATION: "77",
                "traceparent": TRACEPARENT,
            },
        )
        await jetstream.delete_msg(keys.INGEST_STREAM, waiting.seq)

    return Rig(
        NatsJobs(link.ingest, quiet=0.05), NatsIngest(link.ingest, NatsOriginalStore(link.ingest)), change, bury
    )


@pytest.fixture(params=["fake", "nats"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return fake() if request.param == "fake" else real(request.getfixturevalue("link"))


async def test_lanes_have_a_few_jobs_of_each_tenant(rig: Rig) -> None:
    """The first lanes hold a few jobs of each tenant. Jobs of another tenant do not count."""
    for number in range(9):
        await rig.submit(f"{number}.md")
    await rig.submit("theirs.md", principal=STRANGER)
    lanes = await rig.jobs.lanes(LOCAL, soon())
    assert [(lane.jobs, lane.places) for lane in lanes] == [(8, 8), (1, 64), (0, 512), (0, None)]
    assert [lane.jobs for lane in await rig.jobs.lanes(STRANGER, soon())] == [1, 0, 0, 0]


async def test_jobs_are_listed(rig: Rig) -> None:
    """Jobs are listed by index and state, most recently changed first, without those of other tenants."""
    a, b = await rig.submit("a"), await rig.submit("b", "other")
    await rig.submit("c")
    await rig.submit("d", principal=STRANGER)
    assert await rig.listed() == ["c", "b", "a"]
    await rig.change(a, "parsing")
    await rig.change(b, "failed", "INTERNAL")
    assert await rig.listed() == ["b", "a", "c"]
    assert await rig.listed(index="docs") == ["a", "c"]
    assert await rig.listed(state="failed") == ["b"]
    assert await rig.listed(state="queued", index="other") == []
    assert await rig.listed(STRANGER) == ["d"]


async def test_pages_follow_each_other(rig: Rig) -> None:
    """Pages list each job once and in order. The last page has no token. An invalid token is refused."""
    names = [(await rig.submit(str(number))).sourcefile for number in range(7)]
    found: list[str] = []
    token = ""
    for _ in range(4):
        page = await rig.jobs.page(LOCAL, index="", state="", count=2, token=token, deadline=soon())
        found += [job.sourcefile for job in page.jobs]
        token = page.next_token
    assert (found, token) == (names[::-1], "")
    for wrong in ("x", "-1", "0", "1.5", "²"):
        with pytest.raises(InvalidRequest):
            await rig.jobs.page(LOCAL, index="", state="", count=2, token=wrong, deadline=soon())


async def test_a_job_is_cancelled(rig: Rig) -> None:
    """A waiting or running job can be cancelled, even twice. A job that has ended or is about to end cannot."""
    waiting, running, done, ending = [await rig.submit(name) for name in "abcd"]
    await rig.change(running, "indexing")
    await rig.change(done, "succeeded")
    await rig.change(ending, "indexing", committing=True)
    for job in (waiting, running, waiting):
        assert (await rig.jobs.cancel(LOCAL, job.id, soon())).state == "cancelled"
    for job in (done, ending):
        with pytest.raises(Conflict):
            await rig.jobs.cancel(LOCAL, job.id, soon())
    states = [(await rig.ingest.job(LOCAL, job.id, soon())).state for job in (waiting, running, done, ending)]
    assert states == ["cancelled", "cancelled", "succeeded", "indexing"]


async def test_another_tenants_job_does_not_exist(rig: Rig) -> None:
    """A job of another tenant and an unknown job cannot be cancelled, watched or replayed."""
    job = await rig.submit()
    await rig.change(job, "failed", "INTERNAL")
    await rig.bury(job)
    for principal, job_id in ((STRANGER, job.id), (LOCAL, "none"), (LOCAL, ">"), (LOCAL, "")):
        with pytest.raises(NotFound):
            await rig.jobs.cancel(principal, job_id, soon())
        with pytest.raises(NotFound):
            await anext(rig.jobs.watch(principal, job_id, 0))
        replay = await rig.jobs.replay(principal, [job_id], soon())
        assert (replay.replayed, replay.not_found) == ((), (job_id,))
    assert (await rig.jobs.dead_letters(STRANGER, count=9, token="", deadline=soon())).letters == ()
    assert (await rig.jobs.replay(STRANGER, None, soon())).replayed == ()


async def test_a_job_is_watched_to_its_end(rig: Rig) -> None:
    """A watch yields the current state, each change and the end. With a revision, it yields only later changes."""
    job = await rig.submit()
    async with aclosing(rig.jobs.watch(LOCAL, job.id, 0)) as changes:
        first = await anext(changes)
        assert first is not None
        assert first.job.state == "queued"
        assert await anext(changes) is None
        await rig.change(job, "parsing")
        second = await _next(changes)
        assert (second.job.state, second.revision > first.revision) == ("parsing", True)
    await rig.change(job, "succeeded")
    rest = [change async for change in rig.jobs.watch(LOCAL, job.id, second.revision) if change]
    assert [change.job.state for change in rest] == ["succeeded"]
    assert [change async for change in rig.jobs.watch(LOCAL, job.id, rest[0].revision)] == []


async def _next(changes: AsyncIterator[JobChange | None]) -> JobChange:
    while True:
        if (change := await anext(changes)) is not None:
            return change


async def test_a_change_is_seen_at_once(link: NatsLink) -> None:
    """A watch reports a change without waiting for its next poll."""
    rig = real(link)
    job = await rig.submit()
    async with asyncio.timeout(60), aclosing(NatsJobs(link.ingest, quiet=600).watch(LOCAL, job.id, 0)) as changes:
        await anext(changes)
        following = asyncio.create_task(_next(changes))
        await asyncio.sleep(0.05)
        await rig.change(job, "parsing")
        assert (await following).job.state == "parsing"


async def test_dead_letters_are_replayed(rig: Rig) -> None:
    """Dead letters are replayed by id or all together, as queued jobs. The others stay."""
    jobs = []
    for name in "abc":
        jobs.append(await rig.submit(name))
        await rig.change(jobs[-1], "failed", "INTERNAL")
        await rig.bury(jobs[-1])
    page = await rig.jobs.dead_letters(LOCAL, count=2, token="", deadline=soon())
    assert [letter.sourcefile for letter in page.letters] == ["c", "b"]
    letter = page.letters[0]
    assert (letter.job_id, letter.index, letter.reason) == (jobs[2].id, "docs", "INTERNAL")
    assert (letter.message, letter.attempts, letter.died_at[-1]) == ("Größe: 5 %", 5, "Z")
    rest = await rig.jobs.dead_letters(LOCAL, count=2, token=page.next_token, deadline=soon())
    assert [letter.sourcefile for letter in rest.letters] == ["a"]
    assert await rig.jobs.replay(LOCAL, [jobs[1].id, "none"], soon()) == Replay((jobs[1].id,), ("none",))
    again = await rig.ingest.job(LOCAL, jobs[1].id, soon())
    assert (again.state, again.attempt, again.error_reason) == ("queued", 0, "")
    assert set((await rig.jobs.replay(LOCAL, None, soon())).replayed) == {jobs[0].id, jobs[2].id}
    assert (await rig.jobs.dead_letters(LOCAL, count=9, token="", deadline=soon())).letters == ()


async def test_a_replayed_job_keeps_its_generation(link: NatsLink) -> None:
    """A replayed job keeps its generation and its trace. A full queue refuses it."""
    rig = real(link)
    job = await rig.submit()
    await rig.change(job, "failed", "INTERNAL")
    await rig.bury(job)
    await rig.submit("other")
    with pytest.raises(RateLimited):
        await NatsJobs(link.ingest, Backlog(9, 1)).replay(LOCAL, None, soon())
    await rig.jobs.replay(LOCAL, None, soon())
    jetstream = (await link.ingest()).jetstream
    message = await jetstream.get_last_msg(keys.INGEST_STREAM, keys.ingest_jobs_of(LOCAL.tenant, "docs"))
    assert message.headers is not None
    assert (message.headers[GENERATION], message.headers["Causeway-Job-Id"]) == ("77", job.id)
    assert message.headers["traceparent"] == TRACEPARENT
    assert ingest_pb2.IngestJob.FromString(message.data or b"").job_id == job.id


async def test_a_dead_letter_with_invalid_data_is_not_replayed(link: NatsLink) -> None:
    """A dead letter that contains no valid job is listed, and stays when the others are replayed."""
    rig = real(link)
    job = await rig.submit()
    await rig.change(job, "failed", "INTERNAL")
    await rig.bury(job)
    await (await link.ingest()).jetstream.publish(
        keys.ingest_dead_subject(LOCAL.tenant, "docs"), b"\xff", headers={"Causeway-Job-Id": "none"}
    )
    assert (await rig.jobs.replay(LOCAL, None, soon())).replayed == (job.id,)
    assert await rig.jobs.replay(LOCAL, ["none"], soon()) == Replay((), ("none",))
    [remaining] = (await rig.jobs.dead_letters(LOCAL, count=9, token="", deadline=soon())).letters
    assert remaining.job_id == "none"


async def test_a_page_reads_a_bounded_number_of_jobs(link: NatsLink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads a bounded number of jobs. Its token continues after them."""
    monkeypatch.setattr("gateway.clients.jobs._MAX_EXAMINED", 200)
    transport = await link.ingest()

    async def put(number: int, state: str) -> None:
        job = ingest_pb2.Job(job_id=f"{number:032x}", index="docs", state=STATES[state], sourcefile=f"{number}.md")
        key = keys.job_key(LOCAL.tenant, job.job_id)
        await transport.jetstream.publish(f"$KV.{keys.JOBS_BUCKET}.{key}", job.SerializeToString())

    await put(0, "failed")
    await asyncio.gather(*(put(number, "succeeded") for number in range(1, 251)))
    jobs, pages = NatsJobs(link.ingest), []
    token, more = "", True
    while more:
        page = await jobs.page(LOCAL, index="", state="failed", count=50, token=token, deadline=soon())
        pages.append([job.sourcefile for job in page.jobs])
        token, more = page.next_token, bool(page.next_token)
    assert pages == [[], ["0.md"]]


async def test_a_stream_is_read_backwards(link: NatsLink) -> None:
    """The messages of a subject are read backwards from a position, and no consumer remains."""
    jetstream = (await link.ingest()).jetstream
    bucket = (await link.ingest()).jobs
    await asyncio.gather(*(bucket.put(f"{'a' if number % 3 else 'b'}.{number}", b"x") for number in range(1500)))

    async def read(before: int = 0) -> list[int]:
        messages = newest_first(jetstream, f"KV_{keys.JOBS_BUCKET}", f"$KV.{keys.JOBS_BUCKET}.b.*", before)
        return [message.metadata.sequence.stream async for message in messages]

    sequences = await read()
    assert len(sequences) == 500
    assert sequences == sorted(sequences, reverse=True)
    assert await read(sequences[499]) == []
    assert await read(sequences[200]) == sequences[201:]
    assert not await jetstream.consumers_info(f"KV_{keys.JOBS_BUCKET}")


class SlowFetches:
    """A JetStream context, or a subscription, whose first fetches time out.

    Args:
        real: The wrapped object.
        timeouts: The number of fetches that time out.
    """

    def __init__(self, real: Any, timeouts: int) -> None:
        self._real, self._timeouts = real, timeouts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def pull_subscribe_bind(self, **where: str) -> "SlowFetches":
        return SlowFetches(await self._real.pull_subscribe_bind(**where), self._timeouts)

    async def fetch(self, batch: int, timeout: float) -> Any:  # noqa: ASYNC109  # as the client's
        self._timeouts -= 1
        if self._timeouts >= 0:
            raise nats.errors.TimeoutError
        return await self._real.fetch(batch, timeout=timeout)


@pytest.mark.parametrize("timeouts", [0, 2, 3])
async def test_a_fetch_that_times_out_is_repeated(link: NatsLink, timeouts: int) -> None:
    """A fetch is repeated after a time-out. The third time-out is an error instead of an empty page."""
    transport = await link.ingest()
    await asyncio.gather(*(transport.jobs.put(f"a.{number}", b"x") for number in range(5)))
    jetstream = cast("JetStreamContext", SlowFetches(transport.jetstream, timeouts))
    found = newest_first(jetstream, f"KV_{keys.JOBS_BUCKET}", f"$KV.{keys.JOBS_BUCKET}.a.*")
    if timeouts < 3:
        assert len([message async for message in found]) == 5
    else:
        with pytest.raises(nats.errors.TimeoutError):
            await anext(found)

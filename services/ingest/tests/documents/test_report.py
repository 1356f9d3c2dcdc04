import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from causeway_testing.ingest.memory import MemoryJobs, make_job
from causeway_testing.servers import eventually
from ingest.documents.report import OwnershipLost, Report
from ingest.domain import Failure, Job, JobWarning, Progress, State, Status
from servicekit.errors import Unavailable

JOB = make_job(b"x")


async def test_a_job_goes_through_its_states() -> None:
    """The job is PARSING, then INDEXING, then ended. The values that the gateway recorded remain."""
    jobs = MemoryJobs()
    await jobs.write(JOB, Status(State.QUEUED, trace_id="abc"), 0)
    report = await Report.begin(jobs, JOB, 1)
    await eventually(lambda: jobs.history[-1][1].state is State.PARSING)
    await report.record_progress(Progress(chunks_total=3), State.INDEXING)
    await eventually(lambda: jobs.history[-1][1].state is State.INDEXING)
    await report.record_end(State.SUCCEEDED)
    assert [status.state for _, status in jobs.history] == [
        State.QUEUED,
        State.PARSING,
        State.INDEXING,
        State.SUCCEEDED,
    ]
    last = jobs.history[-1][1]
    assert (last.attempt, last.trace_id, last.progress.chunks_total) == (1, "abc", 3)


async def test_a_short_job_has_few_records() -> None:
    """States that last less than the interval are not recorded, and no state is recorded after the end."""
    jobs = MemoryJobs()
    report = await Report.begin(jobs, JOB, 1)
    await report.record_progress(Progress(chunks_total=3), State.INDEXING)
    await report.record_end(State.SUCCEEDED)
    await asyncio.sleep(0.3)
    assert [status.state for _, status in jobs.history] == [State.SUCCEEDED]


async def test_another_attempt_is_recorded_at_once() -> None:
    """The second attempt is recorded immediately, so that a document that quickly kills its worker is detected."""
    jobs = MemoryJobs()
    await Report.begin(jobs, JOB, 1)
    assert jobs.history == []
    await Report.begin(jobs, JOB, 2)
    assert [(status.state, status.attempt, status.counted_attempts) for _, status in jobs.history] == [
        (State.PARSING, 2, 1)
    ]


class SlowWrites(MemoryJobs):
    """Writes that wait for an event."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.may_end = asyncio.Event(), asyncio.Event()

    async def write(self, job: Job, status: Status, revision: int) -> int:
        self.writing.set()
        await self.may_end.wait()
        return await super().write(job, status, revision)


async def test_a_state_that_is_reported_during_a_write() -> None:
    """A change of state during the write of an earlier state is not lost."""
    jobs = SlowWrites()
    report = await Report.begin(jobs, JOB, 1)
    await jobs.writing.wait()
    await report.record_progress(Progress(chunks_total=3), State.INDEXING)
    jobs.may_end.set()
    await eventually(lambda: len(jobs.history) == 2)
    assert [status.state for _, status in jobs.history] == [State.PARSING, State.INDEXING]
    assert set(report.stage_seconds) == {"parsing", "indexing"}


async def test_progress_is_recorded_at_intervals() -> None:
    """A thousand quick reports become a few records, including the last report."""
    jobs = MemoryJobs()
    report = await Report.begin(jobs, JOB, 1)
    for number in range(1000):
        await report.record_progress(Progress(pages_done=number))
    await report.record_end(State.FAILED, Failure("X", "y"))
    assert len(jobs.history) < 20
    assert jobs.history[-1][1].progress.pages_done == 999


async def test_an_ended_job_does_not_change() -> None:
    """The redelivery of an ended job changes nothing."""
    jobs = MemoryJobs()
    await (await Report.begin(jobs, JOB, 1)).record_end(State.SUCCEEDED)
    with pytest.raises(OwnershipLost) as lost:
        await Report.begin(jobs, JOB, 2)
    assert lost.value.state is State.SUCCEEDED


class LostReplies(MemoryJobs):
    """States that are recorded, although the reply is lost."""

    async def write(self, job: Job, status: Status, revision: int) -> int:
        await super().write(job, status, revision)
        raise Unavailable("The message broker does not answer.")


async def test_an_end_is_recorded_although_its_reply_is_lost() -> None:
    """If only the reply to a record of the end is lost, a repeated record succeeds."""
    jobs = LostReplies()
    report = await Report.begin(jobs, JOB, 1)
    with pytest.raises(Unavailable):
        await report.record_end(State.SUCCEEDED)
    await report.record_end(State.SUCCEEDED)
    assert jobs.history[-1][1].state is State.SUCCEEDED


async def test_an_earlier_attempt_cannot_overwrite_a_later_one() -> None:
    """If another worker has taken the job, the record of the earlier worker is refused with `OwnershipLost`."""
    jobs = MemoryJobs()
    early = await Report.begin(jobs, JOB, 1)
    late = await Report.begin(jobs, JOB, 2)
    with pytest.raises(OwnershipLost) as lost:
        await early.record_end(State.FAILED)
    assert lost.value.state is None
    await late.record_end(State.SUCCEEDED)
    assert jobs.history[-1][1].state is State.SUCCEEDED


async def test_a_later_attempt_overwrites_an_earlier_one() -> None:
    """A late record of an earlier attempt does not stop the later attempt."""
    jobs = MemoryJobs()
    late = await Report.begin(jobs, JOB, 2)
    _, revision = jobs.records[JOB.principal.tenant, JOB.job_id]
    await jobs.write(JOB, Status(State.INDEXING, 1), revision)
    await late.record_end(State.SUCCEEDED)
    assert jobs.history[-1][1] == Status(State.SUCCEEDED, 2, counted_attempts=1)


async def test_a_cancellation_is_detected() -> None:
    """After a cancellation, the worker stops at its next record."""
    jobs = MemoryJobs()
    await jobs.write(JOB, Status(State.QUEUED), 0)
    report = await Report.begin(jobs, JOB, 1)
    _, revision = jobs.records[JOB.principal.tenant, JOB.job_id]
    await jobs.write(JOB, Status(State.CANCELLED, 1), revision)
    await report.record_progress(Progress(), State.INDEXING)
    await asyncio.sleep(0.3)
    assert jobs.history[-1][1].state is State.CANCELLED
    with pytest.raises(OwnershipLost) as lost:
        await report.commit()
    assert lost.value.state is State.CANCELLED
    assert jobs.history[-1][1].state is State.CANCELLED


async def test_progress_with_an_unavailable_broker() -> None:
    """If progress cannot be recorded, the job continues. If its end cannot be recorded, `record_end` fails."""
    jobs = MemoryJobs()
    report = await Report.begin(jobs, JOB, 1)
    jobs.down = True
    await report.record_progress(Progress(pages_done=3), State.INDEXING)
    with pytest.raises(Unavailable):
        await report.record_end(State.SUCCEEDED)
    jobs.down = False
    await report.record_end(State.SUCCEEDED)
    assert jobs.history[-1][1].progress.pages_done == 3


async def test_a_committed_job_cannot_be_cancelled() -> None:
    """A cancellation before the commit wins. After the commit, all later records and attempts keep `committing`."""
    jobs = MemoryJobs()
    report = await Report.begin(jobs, JOB, 1)
    await asyncio.gather(report.commit(), report.record_progress(Progress(chunks_done=1), State.INDEXING))
    await report.record_outage(Failure("UNAVAILABLE", "Away."))
    later = await Report.begin(jobs, JOB, 2)
    assert later.committing
    await later.record_progress(Progress(chunks_done=2), State.INDEXING)
    assert [status.committing for _, status in jobs.history[1:]] == sorted(
        status.committing for _, status in jobs.history[1:]
    )
    assert jobs.history[-1][1].committing


async def test_a_commit_ends_the_stage_before_it() -> None:
    """The time before a commit belongs to the state before it, even if no progress was recorded."""
    report = await Report.begin(MemoryJobs(), JOB, 1)
    await asyncio.sleep(0.05)
    await report.commit()
    assert report.stage_seconds["parsing"] >= 0.05
    assert set(report.stage_seconds) == {"parsing", "indexing"}


async def test_a_cancelled_job_does_not_commit() -> None:
    """The worker detects a cancellation before the commit at the latest."""
    jobs = MemoryJobs()
    await jobs.write(JOB, Status(State.QUEUED), 0)
    report = await Report.begin(jobs, JOB, 1)
    status, revision = jobs.records[JOB.principal.tenant, JOB.job_id]
    await jobs.write(JOB, replace(status, state=State.CANCELLED), revision)
    with pytest.raises(OwnershipLost):
        await report.commit()
    assert jobs.history[-1][1].state is State.CANCELLED


async def test_which_attempts_count() -> None:
    """An attempt counts from its start, unless a dependency was unavailable or the worker stopped."""
    jobs = MemoryJobs()
    attempts = []
    for attempt, end in enumerate(("record_outage", "record_failure", "record_interruption", "record_outage"), 1):
        report = await Report.begin(jobs, JOB, attempt)
        arguments = [] if end == "record_interruption" else [Failure("X", "y")]
        await getattr(report, end)(*arguments)
        attempts.append((report.counted_attempts, report.seconds_waited > 0))
    assert attempts == [(0, True), (1, False), (1, False), (1, True)]


async def test_an_outage_after_a_wait_for_earlier_jobs() -> None:
    """The wait for earlier jobs does not count as part of an outage that follows."""
    jobs = MemoryJobs()
    await (await Report.begin(jobs, JOB, 1)).record_wait_for_earlier_jobs()
    await asyncio.sleep(0.01)
    started = datetime.now(UTC)
    report = await Report.begin(jobs, JOB, 2)
    assert report.seconds_waited == 0
    await report.record_outage(Failure("UNAVAILABLE", "Away."))
    since = jobs.history[-1][1].waiting_since
    assert since is not None
    assert since >= started


async def test_warnings_are_bounded() -> None:
    """A record has at most fifty warnings of bounded length, and the number of all warnings."""
    jobs = MemoryJobs()
    report = await Report.begin(jobs, JOB, 1)
    report.set_warnings([JobWarning("UNREADABLE_DOCUMENT", "x" * 1000, page) for page in range(1, 71)])
    await report.record_end(State.SUCCEEDED)
    last = jobs.history[-1][1]
    assert (len(last.warnings), last.warning_count) == (50, 70)
    assert {len(warning.message) for warning in last.warnings} == {500}

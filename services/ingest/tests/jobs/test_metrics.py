from causeway_testing.ingest.memory import MemoryJobs, make_job
from causeway_testing.servers import measured
from ingest.documents.report import Report
from ingest.domain import Progress, State
from ingest.jobs import metrics


def metric_sum(name: str, **labels: str) -> float:
    return sum(value for found, value in measured(name) if labels.items() <= found.items())


def test_cancelled_jobs_have_no_series() -> None:
    """Workers do not end cancelled jobs, so a series of them would always be 0."""
    states = {labels["state"] for labels, _ in measured("causeway_ingest_jobs_total")}
    assert "dead" in states
    assert "cancelled" not in states


async def test_the_log_line_of_a_job() -> None:
    """The log line has the kind and the final state of the job and the time of each stage, which add up. It has no
    content of the document.
    """
    measured("")
    job = make_job(b"secret words", "private.txt")
    before = metric_sum("causeway_ingest_jobs_total", state="succeeded")
    report = await Report.begin(MemoryJobs(), job, 1)
    await report.record_progress(Progress(pages_done=2, pages_total=2))
    await report.record_progress(Progress(2, 2, 5, 5), State.INDEXING)
    fields = metrics.record_end(job, report.latest_progress, report.stage_seconds, "succeeded")
    logged = {name: fields[name] for name in ("state", "tenant", "index", "kind", "pages", "chunks")}
    assert logged == {
        "state": "succeeded",
        "tenant": "acme",
        "index": "library",
        "kind": "file",
        "pages": 2,
        "chunks": 5,
    }
    assert {name for name in fields if name.endswith("_ms")} == {"duration_ms", "parsing_ms", "indexing_ms"}
    assert fields["duration_ms"] >= fields["parsing_ms"]
    assert not any(word in str(fields) for word in ("secret", "private"))
    assert metric_sum("causeway_ingest_jobs_total", state="succeeded") == before + 1
    assert metric_sum("causeway_ingest_stage_seconds_count", causeway_stage="parsing") >= 1

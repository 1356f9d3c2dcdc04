"""What is measured of jobs that have ended, and what their line in the log says."""

from typing import Any

from servicekit import metrics

from ingest.documents.report import Report
from ingest.domain import AccessJob, FileJob, Job, State, TextsJob

DEAD = "dead"
"""How a job ended that was given up."""
_ended = metrics.counter(
    __name__,
    "causeway.ingest.jobs",
    "",
    "Jobs that ended, by how; dead: given up.",
    [{"state": state} for state in (DEAD, *(each.value for each in State if each.final))],
)
_KINDS = {FileJob: "file", TextsJob: "texts", AccessJob: "access"}
_stages = metrics.durations(__name__, "causeway.ingest.stage", "Seconds of each stage of a job's last attempt.")


def ended(job: Job, report: Report, state: str) -> dict[str, Any]:
    """Counts a job that has ended, and returns the members of its line: what it was and where its time went.

    Args:
        job: The job.
        report: Of its last attempt.
        state: How it ended.
    """
    _ended.add(1, {"state": state})
    for stage, seconds in report.stages.items():
        _stages.record(seconds, {"causeway.stage": stage})
    progress = report.told
    return {
        "state": state,
        "tenant": job.principal.tenant,
        "index": job.index,
        "kind": _KINDS[type(job)],
        "upload_trace_id": job.trace_id,
        "pages": progress.pages_done,
        "chunks": progress.chunks_done,
        "duration_ms": round(sum(report.stages.values()) * 1000, 1),
        **{f"{stage}_ms": round(seconds * 1000, 1) for stage, seconds in report.stages.items()},
    }

"""Metrics and log fields of jobs that have ended."""

from collections.abc import Mapping
from typing import Any

from servicekit import metrics

from ingest.domain import AccessJob, FileJob, Job, Progress, TextsJob

DEAD = "dead"
"""The value of ``state`` for a job that was given up."""
_ended = metrics.counter(
    __name__,
    "causeway.ingest.jobs",
    "",
    "Jobs that a worker ended, by final state; dead: given up.",
    # Without ``cancelled``, because the gateway ends cancelled jobs.
    [{"state": state} for state in ("succeeded", "unchanged", "failed", DEAD)],
)
_KINDS = {FileJob: "file", TextsJob: "texts", AccessJob: "access"}
_stages = metrics.durations(__name__, "causeway.ingest.stage", "Seconds of each stage of a job's last attempt.")


def record_end(job: Job, progress: Progress, stage_seconds: Mapping[str, float], state: str) -> dict[str, Any]:
    """Count a job that has ended, and return the fields of its log line: its properties and durations.

    Args:
        job: The job.
        progress: The progress of its last attempt.
        stage_seconds: The seconds that the last attempt has spent in each state of the job.
        state: Its final state; `DEAD` if it was given up.
    """
    _ended.add(1, {"state": state})
    for stage, seconds in stage_seconds.items():
        _stages.record(seconds, {"causeway.stage": stage})
    return {
        "state": state,
        "tenant": job.principal.tenant,
        "index": job.index,
        "kind": _KINDS[type(job)],
        "upload_trace_id": job.trace_id,
        "pages": progress.pages_done,
        "chunks": progress.chunks_done,
        "duration_ms": round(sum(stage_seconds.values()) * 1000, 1),
        **{f"{stage}_ms": round(seconds * 1000, 1) for stage, seconds in stage_seconds.items()},
    }

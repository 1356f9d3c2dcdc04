"""``causeway jobs``: lists jobs, shows the lanes of the queue, cancels jobs, and resubmits dead letters."""

import enum
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from causeway.cli import render
from causeway.cli.answers import Job
from causeway.cli.errors import UsageError
from causeway.cli.library import run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url
from causeway.cli.outcomes import act_on_each


class JobState(enum.StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    PARSING = "parsing"
    INDEXING = "indexing"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    CANCELLED = "cancelled"


Index = Annotated[
    str,
    typer.Option(
        "--index", "-i", metavar="INDEX", help="Only jobs that write to this index. Default: all indexes."
    ),
]
State = Annotated[
    JobState | None,
    typer.Option(
        "--state",
        "-s",
        help="Only jobs in this state. Default: all states. The column Stage shows more than the state: `fetching` "
        "for some jobs that are parsing, and `waiting` for some that are queued.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=100_000, metavar="NUMBER", help="Maximum number of jobs to show.")
]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.", show_default=False)]
OptionalIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Ids of jobs; `causeway jobs dead` lists them.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="Resubmit all jobs that were given up.")]

EXAMPLES = (
    "causeway jobs list",
    "causeway jobs list --state failed --index staff",
    "causeway jobs list --json | jq -r 'select(.stage == \"waiting\") | .error.message'",
    "causeway jobs lanes",
    "causeway jobs dead",
    "causeway jobs dead --json | jq -r .id",
    "causeway jobs replay --all",
    "causeway jobs cancel 3f2b8c1d9e0a4b7c8d6e5f4a3b2c1d0e",
)


def list_jobs(
    index: Index = "",
    state: State = None,
    limit: Limit = 50,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """List the ingest jobs, the most recently changed job first.

    With --json the command prints one object per job, in the format of GET /jobs/{id}.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.jobs(index, state or "", limit + 1))
    _show(found, "No job matches." if index or state else "There are no jobs.", limit, as_json=as_json)


def dead(
    limit: Limit = 50,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """List the jobs that were given up after repeated failures.

    The newest job comes first. A job whose document cannot be read is not in this list, because another attempt
    would fail in the same way. `causeway jobs list --state failed` lists both. With --json the command prints one
    object per job, in the format of GET /jobs/dead.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.dead(limit + 1))
    _show(found, "No job was given up.", limit, as_json=as_json)


def lanes(
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Show the number of your tenant's jobs in each lane of the queue.

    The queue consists of lanes, so that a tenant with many jobs does not delay the jobs of other tenants. Each lane
    except the last has a limited number of places for each tenant. A new job waits in the first lane with a free
    place. With --json the command prints one object per lane.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.lanes())
    out = render.console()
    if as_json:
        for lane in found:
            render.json_line(out, lane)
        return
    rows = [
        (str(lane["lane"]), str(lane["jobs"]), "no limit" if lane["places"] is None else str(lane["places"]))
        for lane in found
    ]
    render.table(out, ("Lane", "Jobs", "Places"), rows)


def replay(
    job_ids: OptionalIds = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    replay_all: All = False,
    as_json: Json = False,
) -> None:
    """Resubmit jobs that were given up; `causeway jobs dead` lists them.

    The exit code is 1 if a job does not exist or was not given up.
    """
    if replay_all == bool(job_ids):
        raise UsageError("give the ids of the jobs, or use --all, but not both")
    found = run_with_library(
        url, data_dir, api_key, lambda library: library.replay(None if replay_all else job_ids)
    )
    out = render.console()
    if as_json:
        render.json_line(out, {"replayed": found.replayed, "not_found": found.not_found})
    else:
        for job_id in found.replayed:
            render.line(out, f"submitted again: {job_id}")
        for job_id in found.not_found:
            render.line(out, f"{job_id}: no job with this id was given up", "red")
        if not found.replayed and not found.not_found:
            render.line(out, "No job was given up.")
    if found.not_found:
        raise typer.Exit(1)


def cancel(
    job_ids: Ids,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Cancel jobs, so that their documents do not change.

    Searches find no text of a cancelled job. The exit code is 1 if a job has already ended or does not exist.
    """
    run_with_library(
        url, data_dir, api_key, lambda library: act_on_each(job_ids, library.cancel, "cancelled", as_json=as_json)
    )


def _show(found: Sequence[dict[str, Any]], nothing: str, limit: int, *, as_json: bool) -> None:
    out = render.console()
    if as_json:
        for job in found[:limit]:
            render.json_line(out, job)
        return
    if not found:
        render.line(out, nothing)
        return
    jobs_found = [Job.of(job) for job in found]
    rows = [
        (
            job.id,
            render.state(job.stage),
            f"{job.percent} %" if job.stage != "dead" else "",
            job.index,
            job.sourcefile,
            job.updated_at[:19].replace("T", " "),
            job.message
            or (f"{render.counted(job.warning_count, 'warning')}: {job.warnings[0].text}" if job.warnings else ""),
        )
        for job in jobs_found
    ]
    render.page(out, ("Job", "Stage", "", "Index", "File", "Changed (UTC)", ""), rows, limit)

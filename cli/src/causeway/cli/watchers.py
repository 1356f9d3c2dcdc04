"""The progress of an ingest: bars on a terminal, lines elsewhere, JSON for programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from causeway.cli import render
from causeway.cli.answers import Job
from causeway.cli.ingesting import Outcome, Source
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

_MAX_ROWS = 50
"""With more files, the table on a terminal lists only the failed ones."""


class JsonWatcher:
    """Prints a JSON object for each file when its ingest ends."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def started(self, source: Source) -> None:
        """Print nothing."""

    def updated(self, source: Source, job: Job) -> None:
        """Print nothing."""

    def finished(self, outcome: Outcome) -> None:
        """Print the object."""
        job = outcome.job
        found = {
            "file": str(outcome.source.path),
            "name": outcome.source.name,
            "state": outcome.state,
            "reason": outcome.reason or None,
            "message": outcome.message or None,
            "job_id": job.id if job else None,
            "document_id": job.document_id if job else None,
            "pages": job.pages_total if job else None,
            "chunks": job.chunks_total if job else None,
            "warnings": [warning.text for warning in job.warnings] if job else [],
            "warning_count": job.warning_count if job else 0,
        }
        render.json_line(self._out, found)
        self._out.file.flush()


class LinesWatcher:
    """Prints a line for each file when its ingest ends."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def started(self, source: Source) -> None:
        """Print nothing."""

    def updated(self, source: Source, job: Job) -> None:
        """Print nothing."""

    def finished(self, outcome: Outcome) -> None:
        """Print the line."""
        # A name with a line feed could look like the outcome of another file.
        name = outcome.source.name.replace("\n", "\\n")
        render.line(self._out, f"{outcome.state}: {name}{_details(outcome)}")
        for line in _warnings(outcome):
            render.line(self._out, f"  {line}", "yellow")
        self._out.file.flush()


class BarsWatcher:
    """A context manager that shows a progress bar for all files, and one for each running file."""

    def __init__(self, out: Console, count: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=out,
            transient=True,
        )
        self._all = self._progress.add_task(render.counted(count, "file"), total=count, note="")
        self._tasks: dict[Source, TaskID] = {}
        self._failed = 0

    def __enter__(self) -> Self:
        """Show the bars; return the object."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bars from the terminal."""
        self._progress.stop()

    def started(self, source: Source) -> None:
        """Show the file's bar."""
        self._tasks[source] = self._progress.add_task(f"  {render.printable(source.name)}", total=1, note="sending")

    def updated(self, source: Source, job: Job) -> None:
        """Update the file's bar."""
        note = job.stage
        if job.state == "parsing" and job.pages_total:
            note = f"page {job.pages_done}/{job.pages_total}"
        elif job.state == "indexing" and job.chunks_total:
            note = f"chunk {job.chunks_done}/{job.chunks_total}"
        self._progress.update(self._tasks[source], completed=job.percent / 100, note=note)

    def finished(self, outcome: Outcome) -> None:
        """Remove the file's bar and update the total."""
        self._progress.remove_task(self._tasks.pop(outcome.source))
        self._failed += not outcome.ok
        self._progress.update(self._all, advance=1)
        notes = [f"{self._failed} failed"] if self._failed else []
        if left := self._progress.tasks[0].time_remaining:  # known from the second file on
            notes.append(f"{timedelta(seconds=left)} left")
        self._progress.update(self._all, note=", ".join(notes))


def summary(out: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the number of files by state; on a terminal, also print a table of the files and their warnings.

    The table has all files, or only the failed ones if there are more than 50 files. Failed files are last.
    """
    if out.is_terminal:
        listed = outcomes if len(outcomes) <= _MAX_ROWS else [outcome for outcome in outcomes if not outcome.ok]
        rows = [
            (outcome.source.name, render.state(outcome.state), _details(outcome).removeprefix(", "))
            for outcome in sorted(listed, key=lambda outcome: not outcome.ok)
        ]
        if rows:
            render.table(out, ("File", "State", ""), rows)
        for line in _grouped_warnings(outcomes):
            render.line(out, line, "yellow")
    counts = Counter(outcome.state for outcome in outcomes)
    render.line(out, ", ".join(f"{count} {state}" for state, count in counts.items()), "bold")


def _grouped_warnings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield one line for all equal warnings. Hundreds of files may have the same one, for example without OCR."""
    places: dict[str, list[tuple[str, str]]] = {}
    more = 0
    for outcome in outcomes:
        if outcome.job is not None:
            for warning in outcome.job.warnings:
                places.setdefault(warning.message, []).append((outcome.source.name, warning.place))
            more += outcome.job.warning_count - len(outcome.job.warnings)
    for message, found in places.items():
        location = ", ".join(filter(None, found[0]))
        if len(found) > 1:
            files = render.counted(len({name for name, _ in found}), "file")
            location = f"{render.counted(len(found), 'part')} of {files}, for example {location}"
        yield f"not read: {location}: {message}"
    if more:
        yield f"not read: {render.counted(more, 'more part')}"


def _details(outcome: Outcome) -> str:
    if outcome.message or outcome.reason:
        return f", {outcome.message or outcome.reason}"
    job = outcome.job
    if job is None or not job.chunks_total:
        return ""
    pages = f", {render.counted(job.pages_total, 'page')}" if job.pages_total else ""
    warned = f", {render.counted(job.warning_count, 'warning')}" if job.warning_count else ""
    return f"{pages}, {render.counted(job.chunks_total, 'chunk')}{warned}"


def _warnings(outcome: Outcome) -> list[str]:
    job = outcome.job
    if job is None or not job.warnings:
        return []
    more = job.warning_count - len(job.warnings)
    return [
        *(f"not read: {warning.text}" for warning in job.warnings),
        *[f"not read: {render.counted(more, 'more part')}"] * (more > 0),
    ]

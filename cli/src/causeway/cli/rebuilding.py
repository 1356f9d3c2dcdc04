"""Follows the rebuild of an index to its end."""

import asyncio
from typing import Any

from causeway.cli import render
from causeway.cli.errors import CommandError
from causeway.cli.library import Library
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_POLL_SECONDS = 0.5


async def wait_for_rebuild(library: Library, name: str, started: dict[str, Any], err: Console) -> dict[str, Any]:
    """Wait until a rebuild has ended, and return its final state.

    On a terminal, a bar shows the progress. Otherwise the function prints a line after each tenth of the documents.

    Args:
        library: The platform's indexes.
        name: The name of the index.
        started: The rebuild as the platform returned it at the start.
        err: The console for the progress.

    Raises:
        CommandError: The platform no longer returns the rebuild, because the index was deleted or the API key has
            lost its access.
    """
    last, tenths = started, 0
    with _bar(err) as bar:
        task = bar.add_task(f"Rebuilding {render.printable(name)}", total=None)
        while last["state"] == "running":
            done, total = int(last["documents_done"]), int(last["documents_total"])
            bar.update(task, completed=done, total=total or None)
            if not err.is_terminal and (reached := 10 * done // total if total else 0) > tenths:
                tenths = reached
                render.line(err, f"{done:,} of {total:,} documents")
            await asyncio.sleep(_POLL_SECONDS)
            current = await library.last_rebuild(name)
            if current is None:
                raise CommandError(
                    f"the rebuild of {name!r} cannot be followed: the index was deleted, or the API key has lost "
                    "its access; `causeway index list` shows the indexes"
                )
            last = current
    return last


def sentence(rebuild: dict[str, Any]) -> str:
    """Return a sentence that states the progress or the result of a rebuild."""
    done, total = f"{rebuild['documents_done']:,}", f"{rebuild['documents_total']:,}"
    model = rebuild["embedding"]
    match rebuild["state"]:
        case "running":
            return f"The rebuild for {model} is running: {done} of {total} documents."
        case "succeeded":
            return f"The rebuild for {model} succeeded: {total} documents, at {_moment(rebuild['finished_at'])}."
        case _:
            return f"The rebuild for {model} failed: {rebuild['error']}"


def _moment(text: str | None) -> str:
    return f"{str(text or '')[:19].replace('T', ' ')} UTC"


def _bar(err: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )

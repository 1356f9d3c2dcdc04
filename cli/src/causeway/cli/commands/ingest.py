"""``causeway ingest``: files and directories into an index."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from causeway.cli import render
from causeway.cli.client import Client
from causeway.cli.ingesting import Source, find
from causeway.cli.ingesting import ingest as bring_in
from causeway.cli.options import DEFAULT_DATA_DIR, DataDir, Json, Url, resolve_url
from causeway.cli.watchers import BarsWatcher, JsonWatcher, LinesWatcher, summary

Paths = Annotated[
    list[Path], typer.Argument(exists=True, readable=True, help="Files, and directories with all that is in them.")
]
Index = Annotated[str, typer.Option("--index", "-i", help="The index that the documents go to.")]
AtOnce = Annotated[int, typer.Option(min=1, max=64, help="Files that are on their way at the same time.")]
Patience = Annotated[float, typer.Option(min=1, help="Seconds without progress after which a file is given up.")]

EXAMPLES = (
    "causeway ingest examples/corpus --index skerry",
    "causeway ingest handbook.pdf notes.md --index staff --url http://rag.example.org",
    "causeway ingest docs --index docs --json | jq -r 'select(.state == \"failed\") | .file'",
)


def ingest(
    paths: Paths,
    index: Index,
    at_once: AtOnce = 4,
    patience: Patience = 600,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    *,
    as_json: Json = False,
) -> None:
    """Bring files into an index and wait until they can be found.

    Directories are taken with everything below them but hidden files. A document is called as its file, below a
    directory with the path from there; a file that is brought in again replaces its older version. With --json
    there is one object a file, as soon as it is done.
    """
    sources = find(paths)
    failed = asyncio.run(_ingest(resolve_url(url, data_dir), sources, index, at_once, patience, as_json=as_json))
    if failed:
        raise typer.Exit(1)


async def _ingest(
    url: str, sources: Sequence[Source], index: str, at_once: int, patience: float, *, as_json: bool
) -> int:
    out, err = render.console(), render.console(stderr=True)
    async with Client(url) as client:
        await client.readiness()  # one clear message, before anything is sent, where nobody is there
        if as_json:
            outcomes = await bring_in(client, index, sources, JsonWatcher(out), at_once=at_once, patience=patience)
        elif err.is_terminal:
            with BarsWatcher(err, len(sources)) as bars:
                outcomes = await bring_in(client, index, sources, bars, at_once=at_once, patience=patience)
            summary(out, outcomes)
        else:
            lines = LinesWatcher(out)
            outcomes = await bring_in(client, index, sources, lines, at_once=at_once, patience=patience)
            summary(out, outcomes)
    return sum(not outcome.ok for outcome in outcomes)

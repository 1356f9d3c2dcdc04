"""``causeway ingest``: files and directories into an index."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from causeway.cli import render
from causeway.cli.client import Client
from causeway.cli.errors import UsageError
from causeway.cli.ingesting import Source, Watcher, find
from causeway.cli.mirror import Mirror, Order, Shown
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url, resolve_url
from causeway.cli.signals import cancelled_by_signals
from causeway.cli.watchers import BarsWatcher, JsonWatcher, LinesWatcher, summary
from rich.console import Console

Paths = Annotated[
    list[Path], typer.Argument(exists=True, readable=True, help="Files, and directories with all that is in them.")
]
Index = Annotated[str, typer.Option("--index", "-i", help="The index that the documents go to.")]
AtOnce = Annotated[int, typer.Option(min=1, max=64, help="Files that are on their way at the same time.")]
Patience = Annotated[float, typer.Option(min=1, help="Seconds without progress after which a file is given up.")]

Pictures = Annotated[
    bool, typer.Option("--pictures", help="Keep pictures of the pages of PDFs, for models that see.")
]
DeleteMissing = Annotated[
    bool,
    typer.Option(
        "--delete-missing",
        help="Remove documents from the index that came as files and are none of these (a mirror).",
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Go on: bring in what changes, remove what goes, until Ctrl-C.")
]
Poll = Annotated[
    float,
    typer.Option(min=0, help="With --watch: look every so many seconds, where folders give no notice of changes."),
]

EXAMPLES = (
    "causeway ingest examples/corpus --index skerry",
    "causeway ingest handbook.pdf notes.md --index staff --url http://rag.example.org",
    "causeway ingest ~/notes --index notes --watch",
    "causeway ingest /mnt/share --index share --watch --poll 10 --delete-missing",
    "causeway ingest docs --index docs --json | jq -r 'select(.state == \"failed\") | .file'",
)


def ingest(
    paths: Paths,
    index: Index,
    at_once: AtOnce = 4,
    patience: Patience = 600,
    poll: Poll = 0,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    watch: Watch = False,
    delete_missing: DeleteMissing = False,
    pictures: Pictures = False,
    as_json: Json = False,
) -> None:
    """Bring files into an index and wait until they can be found.

    Directories are taken with everything below them but hidden files. A document is called as its file, below a
    directory with the path from there; a file that is brought in again replaces its older version, one that has not
    changed is not even sent. With --json there is one object a file, as soon as it is done.
    """
    if poll and not watch:
        raise UsageError("--poll goes with --watch")
    sources = find(paths, none=watch or delete_missing)
    client = Client(resolve_url(url, data_dir), api_key=api_key)
    order = Order(index, at_once, patience, pictures, delete_missing)
    if watch:
        asyncio.run(_watch(client, paths, order, poll, as_json=as_json))
    elif asyncio.run(_ingest(client, sources, order, as_json=as_json)):
        raise typer.Exit(1)


async def _ingest(platform: Client, sources: Sequence[Source], order: Order, *, as_json: bool) -> int:
    out, err = render.console(), render.console(stderr=True)
    async with platform as client:
        await client.readiness()  # one clear message, before anything is sent, where nobody is there
        try:
            outcomes = await Mirror(client, order, _shown(out, err, as_json=as_json)).bring(sources)
        except asyncio.CancelledError:
            render.line(err, "interrupted; what was sent already goes on: `causeway jobs` shows it", "yellow")
            raise
    if not as_json:
        summary(out, outcomes)
    return sum(not outcome.ok for outcome in outcomes)


async def _watch(platform: Client, paths: Sequence[Path], order: Order, poll: float, *, as_json: bool) -> None:
    out, err = render.console(), render.console(stderr=True)

    def complain(message: str) -> None:
        render.line(err, f"{message}; trying again", "yellow")

    with contextlib.suppress(asyncio.CancelledError), cancelled_by_signals(lambda: None):
        async with platform as client:
            await client.readiness()
            mirror = Mirror(client, order, _shown(out, err, as_json=as_json, lines=True))
            render.line(err, f"watching {', '.join(str(path) for path in paths)}; Ctrl-C ends it", "dim")
            await mirror.watch(paths, complain, poll=poll)


def _shown(out: Console, err: Console, *, as_json: bool, lines: bool = False) -> Shown:
    """Objects for machines; bars on a terminal, which go when all is done; lines elsewhere."""

    @contextlib.contextmanager
    def show(count: int) -> Iterator[Watcher]:
        if as_json:
            yield JsonWatcher(out)
        elif err.is_terminal and not lines:
            with BarsWatcher(err, count) as bars:
                yield bars
        else:
            yield LinesWatcher(out)

    return show

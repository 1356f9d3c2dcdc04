"""``causeway ingest``: adds files and directories to an index."""

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
from causeway.cli.mirror import Mirror, ProgressFactory, SyncOptions
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url, resolve_url
from causeway.cli.signals import cancelled_by_signals
from causeway.cli.watchers import BarsWatcher, JsonWatcher, LinesWatcher, summary
from rich.console import Console

Paths = Annotated[
    list[Path], typer.Argument(exists=True, readable=True, metavar="PATH", help="Files and directories.")
]
Index = Annotated[
    str, typer.Option("--index", "-i", metavar="INDEX", help="The index that receives the documents.")
]
AtOnce = Annotated[
    int, typer.Option(min=1, max=64, metavar="NUMBER", help="Maximum number of files to ingest concurrently.")
]
Patience = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="If no file makes progress for this time, the files whose jobs have not ended count as failed.",
    ),
]

Pictures = Annotated[
    bool, typer.Option("--pictures", help="Store pictures of the pages of PDFs, for models that accept pictures.")
]
DeleteMissing = Annotated[
    bool,
    typer.Option(
        "--delete-missing",
        help="Delete documents of the index that were uploaded as files and are not among the given files.",
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Watch the files until Ctrl-C: ingest changed files, and delete the documents of removed files.",
    ),
]
Poll = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="With --watch: seconds between checks, for file systems without change notifications; 0 uses "
        "notifications.",
    ),
]

EXAMPLES = (
    "causeway ingest examples/corpus --index handbook",
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
    """Add files to an index and wait until searches can find them.

    The command reads directories recursively, without hidden files. The name of a document is the name of its file,
    or the file's path relative to the directory. A changed file replaces the older version of its document. The
    command uploads unchanged files only with --pictures. The exit code is 1 if a file failed. With --json the
    command prints one object per file when the file's job ends.
    """
    if poll and not watch:
        raise UsageError("--poll needs --watch")
    sources = find(paths, allow_empty=watch or delete_missing)
    client = Client(resolve_url(url, data_dir), api_key=api_key)
    options = SyncOptions(index, at_once, patience, pictures, delete_missing)
    if watch:
        asyncio.run(_watch(client, paths, options, poll, as_json=as_json))
    elif asyncio.run(_ingest(client, sources, options, as_json=as_json)):
        raise typer.Exit(1)


async def _ingest(platform: Client, sources: Sequence[Source], options: SyncOptions, *, as_json: bool) -> int:
    out, err = render.console(), render.console(stderr=True)
    async with platform as client:
        await client.readiness()  # raises one clear error before the uploads
        try:
            outcomes = await Mirror(client, options, _progress(out, err, as_json=as_json)).synchronise(sources)
        except asyncio.CancelledError:
            render.line(
                err,
                "interrupted; the platform still ingests the files that were sent (`causeway jobs list` shows "
                "them); repeat the command to send the other files",
                "yellow",
            )
            raise
    if not as_json:
        summary(out, outcomes)
    return sum(not outcome.ok for outcome in outcomes)


async def _watch(
    platform: Client, paths: Sequence[Path], options: SyncOptions, poll: float, *, as_json: bool
) -> None:
    out, err = render.console(), render.console(stderr=True)

    def on_error(message: str) -> None:
        render.line(err, f"{message}; will retry", "yellow")

    with contextlib.suppress(asyncio.CancelledError), cancelled_by_signals(lambda: None):
        async with platform as client:
            await client.readiness()
            mirror = Mirror(client, options, _progress(out, err, as_json=as_json, lines=True))
            render.line(err, f"watching {', '.join(str(path) for path in paths)}; press Ctrl-C to stop", "dim")
            await mirror.watch(paths, on_error, poll=poll)


def _progress(out: Console, err: Console, *, as_json: bool, lines: bool = False) -> ProgressFactory:
    """Return the factory of the output: JSON objects, bars on a terminal, or lines elsewhere."""

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

"""``causeway backup`` and ``causeway restore``: everything that an installation keeps, as a folder."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from causeway.cli import render
from causeway.cli.options import DEFAULT_DATA_DIR, DEFAULT_RETRIEVER, DataDir, NatsUrl

if TYPE_CHECKING:
    from causeway.cli.backup.folder import Contents

BACKUP_EXAMPLES = (
    "causeway backup backups/monday",
    "causeway backup backups/monday --nats-url nats://127.0.0.1:4222 --retriever 127.0.0.1:50051",
)
RESTORE_EXAMPLES = (
    "causeway restore backups/monday --data-dir .data-new",
    "causeway restore backups/monday --nats-url nats://127.0.0.1:4222 --retriever 127.0.0.1:50051",
)

Retriever = Annotated[
    str | None,
    typer.Option(
        "--retriever",
        envvar="CAUSEWAY_RETRIEVER_TARGET",
        help="The platform's retriever. Default: that of the stack that runs on --data-dir, else "
        f"{DEFAULT_RETRIEVER}.",
    ),
]


def backup(
    folder: Annotated[Path, typer.Argument(help="Where to; it is made, or empty.", file_okay=False)],
    nats_url: NatsUrl = None,
    retriever: Retriever = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that jobs under way get to come to their end.")] = 60,
) -> None:
    """Write all that an installation keeps to a folder.

    It serves meanwhile. In it are documents, indexes, access lists, API keys, histories, jobs, usage and audit.
    Uploads are accepted, and wait until the indexes are written. Where no stack runs on the data directory, NATS
    and the retriever run for as long as it takes.
    """
    os.umask(0o077)
    contents = asyncio.run(_backup(folder, nats_url, retriever, data_dir, wait))
    _told(f"{folder} holds the backup", contents)


def restore(
    folder: Annotated[Path, typer.Argument(help="A backup.", exists=True, file_okay=False)],
    nats_url: NatsUrl = None,
    retriever: Retriever = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Annotated[
        int | None,
        typer.Option(
            envvar="CAUSEWAY_NATS_REPLICAS", min=1, max=5, help="Copies in NATS. Default: as many as there were."
        ),
    ] = None,
) -> None:
    """Put a backup into an installation that holds nothing.

    Gateways and workers of ingest do not run meanwhile. Where no stack runs on the data directory, NATS and the
    retriever run for as long as it takes; `causeway up` starts the whole stack afterwards.
    """
    os.umask(0o077)
    contents = asyncio.run(_restore(folder, nats_url, retriever, data_dir, replicas))
    _told(f"{folder} is restored", contents)


async def _backup(
    folder: Path, nats_url: str | None, retriever: str | None, data_dir: Path, patience: float
) -> "Contents":
    # With these come the clients of NATS and gRPC, which the other commands do not need.
    from causeway.cli.backup.folder import Folder
    from causeway.cli.backup.installation import opened
    from causeway.cli.backup.saving import save

    async with opened(nats_url, retriever, data_dir) as installation:
        return await save(installation, Folder(folder), patience, _say)


async def _restore(
    folder: Path, nats_url: str | None, retriever: str | None, data_dir: Path, replicas: int | None
) -> "Contents":
    from causeway.cli.backup.folder import Folder
    from causeway.cli.backup.installation import opened
    from causeway.cli.backup.restoring import restore as put_in

    async with opened(nats_url, retriever, data_dir) as installation:
        return await put_in(installation, Folder(folder), replicas, _say)


def _say(line: str) -> None:
    render.line(render.console(stderr=True), line)


def _told(what: str, contents: "Contents") -> None:
    size = sum(part.size for part in contents.parts)
    render.line(
        render.console(),
        f"{what} of {contents.created_at:%Y-%m-%d %H:%M:%S} UTC: {len(contents.indexes)} indexes, "
        f"{len(contents.streams)} streams, {size} bytes.",
    )

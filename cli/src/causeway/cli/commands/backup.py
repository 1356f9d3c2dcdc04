"""``causeway backup`` and ``causeway restore``: save all data of an installation in a folder, and restore it."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from causeway.cli import render
from causeway.cli.options import DEFAULT_DATA_DIR, DEFAULT_NATS, DEFAULT_RETRIEVER, DataDir

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

NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats-url",
        envvar="CAUSEWAY_NATS_URL",
        metavar="URL",
        help="URL of NATS. Default: the NATS of the local stack that uses --data-dir. If that stack does not run: "
        f"with --retriever, {DEFAULT_NATS}; without it, the command starts NATS and the retriever with --data-dir.",
    ),
]
Retriever = Annotated[
    str | None,
    typer.Option(
        "--retriever",
        envvar="CAUSEWAY_RETRIEVER_TARGET",
        metavar="ADDRESS",
        help="Address of the retriever. Default: the retriever of the local stack that uses --data-dir. If that "
        f"stack does not run: with --nats-url, {DEFAULT_RETRIEVER}; without it, the command starts NATS and the "
        "retriever with --data-dir.",
    ),
]


def backup(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder to write; it must be new or empty.", file_okay=False),
    ],
    nats_url: NatsUrl = None,
    retriever: Retriever = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Maximum seconds to wait for running jobs.")
    ] = 60,
) -> None:
    """Write all stored data of an installation to a folder.

    The backup contains documents, indexes, access lists, API keys, histories, jobs, usage records and audit
    records. It does not contain originals in an S3 bucket. The installation keeps running. It accepts uploads
    during the backup, but does not ingest them until the indexes are written. If no stack runs on the data
    directory, and neither --nats-url nor --retriever is given, the command starts NATS and the retriever for the
    backup.
    """
    os.umask(0o077)
    contents = asyncio.run(_backup(folder, nats_url, retriever, data_dir, wait))
    _show_contents(f"{folder} contains the backup of", contents)


def restore(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder of the backup to restore.", exists=True, file_okay=False),
    ],
    nats_url: NatsUrl = None,
    retriever: Retriever = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    replicas: Annotated[
        int | None,
        typer.Option(
            envvar="CAUSEWAY_NATS_REPLICAS",
            min=1,
            max=5,
            metavar="NUMBER",
            help="Number of replicas in NATS. Default: the number in the backup.",
        ),
    ] = None,
) -> None:
    """Restore a backup into an empty installation.

    Stop all gateways and ingest workers first. If no stack runs on the data directory, and neither --nats-url nor
    --retriever is given, the command starts NATS and the retriever for the restore. Start the whole stack with
    `causeway up` afterwards.
    """
    os.umask(0o077)
    contents = asyncio.run(_restore(folder, nats_url, retriever, data_dir, replicas))
    _show_contents(f"{folder} is restored. It contains the data of", contents)


async def _backup(
    folder: Path, nats_url: str | None, retriever: str | None, data_dir: Path, max_wait: float
) -> "Contents":
    # Imported here, because the clients of NATS and gRPC would delay the start of all other commands.
    from causeway.cli.backup.folder import Folder
    from causeway.cli.backup.installation import opened
    from causeway.cli.backup.saving import save

    async with opened(nats_url, retriever, data_dir) as installation:
        return await save(installation, Folder(folder), max_wait, _show)


async def _restore(
    folder: Path, nats_url: str | None, retriever: str | None, data_dir: Path, replicas: int | None
) -> "Contents":
    from causeway.cli.backup.folder import Folder
    from causeway.cli.backup.installation import opened
    from causeway.cli.backup.restoring import restore as restore_into

    async with opened(nats_url, retriever, data_dir) as installation:
        return await restore_into(installation, Folder(folder), replicas, _show)


def _show(line: str) -> None:
    render.line(render.console(stderr=True), line)


def _show_contents(subject: str, contents: "Contents") -> None:
    size = sum(part.size for part in contents.parts)
    render.line(
        render.console(),
        f"{subject} {contents.created_at:%Y-%m-%d %H:%M:%S} UTC: {render.counted(len(contents.indexes), 'index')}, "
        f"{render.counted(len(contents.streams), 'stream')}, {size} bytes.",
    )

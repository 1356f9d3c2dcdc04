"""Synchronises an index with files: ingests changed files and deletes the documents of missing files."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path

from causeway.cli import folder
from causeway.cli.client import Client
from causeway.cli.errors import CommandError
from causeway.cli.folder import Snapshot, Stamp
from causeway.cli.ingesting import Outcome, Source, Watcher, ingest
from causeway.cli.library import Library
from servicekit import keys

_RETRY_SECONDS = 5.0

ProgressFactory = Callable[[int], AbstractContextManager[Watcher]]
"""Returns a watcher that shows the progress of a number of files."""


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The options of a synchronisation.

    Attributes:
        index: The index.
        at_once: The maximum number of files that are ingested concurrently.
        patience: Seconds. If no file makes progress for this time, the files whose jobs have not ended count as
            failed.
        pictures: Whether to store pictures of pages. A synchronisation then also sends unchanged files, because
            only the platform knows which pictures are missing. `Mirror.watch` does this only at its start.
        delete_missing: Whether to delete documents that were uploaded as files and are not among the given files.
    """

    index: str
    at_once: int
    patience: float
    pictures: bool = False
    delete_missing: bool = False


class Mirror:
    """Synchronises an index with a set of files.

    Args:
        client: The platform's client.
        options: The options.
        progress: Returns the watcher for the progress.
        retry: Seconds until `watch` repeats a failed synchronisation.
    """

    def __init__(
        self, client: Client, options: SyncOptions, progress: ProgressFactory, *, retry: float = _RETRY_SECONDS
    ) -> None:
        self._client = client
        self._library = Library(client)
        self._options = options
        self._progress = progress
        self._retry = retry

    async def synchronise(self, sources: Sequence[Source]) -> list[Outcome]:
        """Ingest new and changed files. With ``delete_missing``, also delete the documents of missing files.

        Raises:
            Unreachable: The platform cannot be reached.
            CommandError: The platform refuses to list or to delete documents.
        """
        documents = await self._library.documents(self._options.index)
        missing: list[Source] = []
        if self._options.delete_missing:
            names = {source.name for source in sources}
            missing = [
                Source(Path(document.name), document.name)
                for document in documents
                if document.from_file
                and document.name not in names
                and document.id == keys.document_id(document.name)
            ]
        stored = (
            {}
            if self._options.pictures
            else {document.name: document for document in documents if document.from_file}
        )
        with self._progress(len(sources) + len(missing)) as watcher:
            outcomes = await ingest(
                self._client,
                self._options.index,
                sources,
                watcher,
                at_once=self._options.at_once,
                patience=self._options.patience,
                stored=stored,
                pictures=self._options.pictures,
            )
            # The platform may store a file under another name, for example `C:\notes.txt` as `notes.txt`. An upload
            # that failed has no job with this name.
            windows = (source.name for source in sources if source.name[1:3] == ":\\" or source.name[:2] == "\\\\")
            stored_names = {name.rpartition("\\")[2] for name in windows}
            stored_names.update(outcome.job.sourcefile for outcome in outcomes if outcome.job is not None)
            missing = [source for source in missing if source.name not in stored_names]
            return [*outcomes, *await self._remove(missing, watcher)]

    async def watch(self, paths: Sequence[Path], on_error: Callable[[str], None], *, poll: float = 0) -> None:
        """Synchronise now, and after each change of a file, until cancelled.

        If a file disappears after the start, the method deletes its document, even without ``delete_missing``.

        Args:
            paths: Files and directories.
            on_error: Called with the reason of each failed synchronisation, before the next attempt.
            poll: See `folder.changes`.
        """
        stamps: Mapping[str, Stamp] | None = None
        async with aclosing(folder.changes(paths, poll=poll)) as notifications:
            async for _ in notifications:
                while True:
                    snapshot = await asyncio.to_thread(Snapshot.of, paths)
                    try:
                        await self._step(snapshot, stamps)
                    except CommandError as error:
                        on_error(str(error))
                        await asyncio.sleep(self._retry)
                    else:
                        stamps = snapshot.stamps
                        break

    async def _step(self, snapshot: Snapshot, stamps: Mapping[str, Stamp] | None) -> None:
        changed = snapshot.changed_since(stamps or {})
        if stamps is None:
            await self.synchronise(changed)
            return
        deleted = [Source(Path(name), name) for name in stamps if name not in snapshot.sources]
        if not changed and not deleted:
            return
        with self._progress(len(changed) + len(deleted)) as watcher:
            await ingest(
                self._client,
                self._options.index,
                changed,
                watcher,
                at_once=self._options.at_once,
                patience=self._options.patience,
                pictures=self._options.pictures,
            )
            await self._remove(deleted, watcher)

    async def _remove(self, sources: Iterable[Source], watcher: Watcher) -> list[Outcome]:
        outcomes = [Outcome(source, "removed") for source in sources]
        if outcomes:
            ids = [keys.document_id(outcome.source.name) for outcome in outcomes]
            await self._library.remove(self._options.index, ids)
        for outcome in outcomes:
            watcher.started(outcome.source)
            watcher.finished(outcome)
        return outcomes

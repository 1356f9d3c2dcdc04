"""Rebuilds of indexes in the background: permissions, progress, and repetition after a restart.

The request is stored with the index's collection. After a restart, the process begins the rebuild again. In a
shared store, another process does so. The process that rebuilds an index holds its `REBUILD` mark.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from functools import partial

import msgspec
import structlog
from embedding.models import EmbeddingModel, EmbeddingModels
from servicekit.errors import CausewayError, Conflict, InvalidRequest, NotFound, PermissionDenied, Unavailable
from servicekit.principal import Principal

from retriever.domain.index import IndexSettings, IndexSpec, Replaced
from retriever.domain.language import AUTO, LEGACY, checked_language
from retriever.indexes import rebuild
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.languages.document_analyzer import DocumentAnalyzer
from retriever.ports.store import REBUILD, Collection

_log = structlog.get_logger(__name__)

_NOTE_SECONDS = 5.0
"""Seconds between two writes of the progress to a shared store."""
_ATTEMPTS = 5
_RETRY_SECONDS = 10.0
_RESUME_SECONDS = 15.0
"""Seconds between two searches for interrupted rebuilds in a shared store."""


class RebuildState(Enum):
    """The state of a rebuild."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Rebuild(msgspec.Struct, frozen=True):
    """One rebuild; ``done`` and ``total`` count documents."""

    embedding_model: str
    settings: IndexSettings
    started_at: datetime
    language: str = LEGACY
    state: RebuildState = RebuildState.RUNNING
    done: int = 0
    total: int = 0
    error: str = ""
    finished_at: datetime | None = None

    def same_as(self, other: "Rebuild") -> bool:
        """Return whether both rebuilds have the same result."""
        own = self.embedding_model, self.language, self.settings
        return own == (other.embedding_model, other.language, other.settings)

    def ended(self, state: RebuildState, error: str = "") -> "Rebuild":
        """Return the rebuild in a final state, finished now."""
        return msgspec.structs.replace(self, state=state, error=error, finished_at=datetime.now(UTC))


_decoder = msgspec.json.Decoder(Rebuild)


class Rebuilds:
    """Rebuilds indexes with another embedding model or language.

    Args:
        indexes: The indexes.
        models: The configured models.
        analyzer: Chooses the language and computes the terms.
        retry_seconds: Seconds between attempts if a store or a model is unavailable.
    """

    def __init__(
        self,
        indexes: Indexes,
        models: EmbeddingModels,
        analyzer: DocumentAnalyzer,
        *,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._indexes = indexes
        self._models = models
        self._analyzer = analyzer
        self._retry_seconds = retry_seconds
        self._running: dict[Index, asyncio.Task[None]] = {}
        self._progress: dict[Index, Rebuild] = {}
        # Held from the check for a running rebuild until the note of the new one is stored.
        self._beginning = asyncio.Lock()
        self._resuming: asyncio.Task[None] | None = None

    async def create(
        self, principal: Principal, index_name: str, model: str, settings: IndexSettings, language: str = ""
    ) -> IndexSpec:
        """Create an empty index. If model or language is empty, the default applies.

        Raises:
            InvalidRequest: A field is wrong.
            Conflict: An index with this name exists.
        """
        found = self._model(model) if model else self._models.default
        language = checked_language(language or AUTO)
        spec = IndexSpec(principal.tenant, index_name, found.name, found.dimension, settings.checked(), language)
        return (await self._indexes.create(spec)).spec

    async def update(
        self, principal: Principal, index_name: str, settings: IndexSettings, names: Iterable[str]
    ) -> IndexSpec:
        """Change settings of an index without a rebuild.

        Args:
            principal: The caller.
            index_name: The index.
            settings: The new settings.
            names: The settings to change.

        Raises:
            InvalidRequest: A setting is wrong.
            NotFound: The index does not exist.
            PermissionDenied: The caller is not an administrator.
            Conflict: The index is being rebuilt with its previous settings.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        if not principal.sees_everything:
            raise PermissionDenied("Only administrators can change an index's settings.", resource=index_name)
        new_settings = index.spec.settings.changed(settings, names)
        async with self._beginning:
            current = await self._last(index)
            if current is not None and current.state is RebuildState.RUNNING:
                raise _rebuild_conflict(index_name, current)
            await index.collection.put_settings(new_settings)
        return index.spec

    async def begin(
        self, principal: Principal, index_name: str, model: str, settings: IndexSettings, language: str = ""
    ) -> Rebuild:
        """Start to rebuild an index in the background. If the same rebuild is running, return its progress.

        Args:
            principal: The caller.
            index_name: The index.
            model: Name of the embedding model. Empty: keep the index's model.
            settings: New values of the settings to change. Those for chunks and OCR apply to documents that are
                added later, because a rebuild keeps the chunks.
            language: The language. Empty: keep the index's language, but replace `LEGACY` by `AUTO`.

        Raises:
            InvalidRequest: A field is wrong.
            NotFound: The index does not exist.
            PermissionDenied: The caller is not an administrator.
            Conflict: A different rebuild of the index is running.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        if not principal.sees_everything:
            raise PermissionDenied("Only administrators can rebuild an index.", resource=index_name)
        name = self._model(model or index.spec.embedding_model).name
        new_settings = index.spec.settings.changed(settings, settings.names())
        current_language = AUTO if index.spec.language == LEGACY else index.spec.language
        total = len(await index.collection.versions())
        requested = Rebuild(
            name, new_settings, datetime.now(UTC), checked_language(language or current_language), total=total
        )
        async with self._beginning:
            current = await self._last(index)
            if current is not None and current.state is RebuildState.RUNNING:
                if current.same_as(requested):
                    return current
                raise _rebuild_conflict(index_name, current)
            await index.collection.put_note(msgspec.json.encode(requested))
            self._start(index, requested)
        return requested

    async def last(self, principal: Principal, index_name: str) -> Rebuild:
        """Return the running rebuild, or the last one.

        Raises:
            NotFound: The index does not exist, or was never rebuilt.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        found = await self._last(index)
        if found is None:
            raise NotFound(f"Index '{index_name}' has not been rebuilt.", resource=index_name)
        return found

    def resume(self) -> None:
        """Begin interrupted rebuilds again in the background. With a shared store, repeat this regularly."""
        self._resuming = asyncio.create_task(self._keep_resuming())

    async def aclose(self) -> None:
        """Stop running rebuilds. The next start begins them again."""
        running = [*self._running.values(), *([self._resuming] if self._resuming else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _resume(self, indexes: list[Index]) -> None:
        """Begin the interrupted rebuilds of these indexes again, and remove each index from the list."""
        while indexes:
            index = indexes[0]
            with contextlib.suppress(NotFound, Replaced):  # the index was replaced or deleted
                async with self._beginning:
                    found = None if index in self._running else await self._last(index)
                    if found is not None and found.state is RebuildState.RUNNING:
                        self._start(index, found)
            indexes.remove(index)

    async def _keep_resuming(self) -> None:
        waiting: list[Index] | None = None
        while True:
            try:
                # Read all notes once. Later, `Indexes.tidy` finds interrupted rebuilds by their marks.
                waiting = (
                    await self._indexes.with_notes() if waiting is None else waiting + self._indexes.interrupted()
                )
                await self._resume(waiting)
            except CausewayError as error:
                _log.warning("interrupted rebuilds cannot be read", why=error.message)
            except Exception:
                _log.exception("interrupted rebuilds cannot be read")
            if not self._indexes.is_shared:
                return
            await asyncio.sleep(_RESUME_SECONDS)

    async def _last(self, index: Index) -> Rebuild | None:
        if index in self._progress:
            return self._progress[index]
        note = await index.collection.note()
        return _decoder.decode(note) if note else None

    def _start(self, index: Index, requested: Rebuild) -> None:
        self._running[index] = asyncio.create_task(self._run(index, requested))

    async def _run(self, index: Index, requested: Rebuild) -> None:
        log = _log.bind(index=index.spec.name, embedding_model=requested.embedding_model)
        try:
            await index.collection.mark(REBUILD)
        except CausewayError as error:
            log.debug("another process rebuilds the index", why=error.message)
            del self._running[index]
            return
        self._progress[index] = requested
        try:
            await self._try(index, requested, log.info)
            log.info("index rebuilt")
        except CausewayError as error:
            log.warning("index not rebuilt; it is unchanged", why=error.message)
            await self._failed(index, error.message)
        except Exception:
            log.exception("index not rebuilt; it is unchanged")
            await self._failed(index, "An unexpected error occurred. The log of the service has the details.")
        finally:
            del self._running[index]
            self._progress.pop(index, None)

    async def _try(self, index: Index, requested: Rebuild, log_event: Callable[..., object]) -> None:
        model = self._model(requested.embedding_model)
        spec = IndexSpec(
            index.spec.tenant,
            index.spec.name,
            model.name,
            model.dimension,
            requested.settings,
            requested.language,
        )
        for left in reversed(range(_ATTEMPTS)):
            target = await self._indexes.create_replacement(spec)
            try:
                log_event("rebuilding an index", documents=requested.total)
                await rebuild.run(
                    self._indexes,
                    index,
                    target,
                    rebuild.Reembedding(index.collection, target, model.passages, self._analyzer),
                    partial(self._note_success, index, target),
                    self._progress_recorder(index),
                )
                return
            except Unavailable as error:
                await self._drop(target)
                if not left or not await index.collection.is_current():
                    raise
                log_event("the rebuild of an index is repeated", why=error.message)
                await asyncio.sleep(self._retry_seconds)
            except BaseException:
                await asyncio.shield(self._drop(target))
                raise

    async def _note_success(self, index: Index, target: Collection) -> None:
        await target.put_note(msgspec.json.encode(self._progress[index].ended(RebuildState.SUCCEEDED)))

    def _progress_recorder(self, index: Index) -> Callable[[int, int], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        noted = loop.time()

        async def done(documents: int, total: int) -> None:
            nonlocal noted
            progress = msgspec.structs.replace(self._progress[index], done=documents, total=total)
            self._progress[index] = progress
            if self._indexes.is_shared and loop.time() > noted + _NOTE_SECONDS:  # for reports of other processes
                noted = loop.time()
                await index.collection.put_note(msgspec.json.encode(progress))

        return done

    async def _failed(self, index: Index, why: str) -> None:
        try:
            await index.collection.put_note(
                msgspec.json.encode(self._progress[index].ended(RebuildState.FAILED, why))
            )
            await index.collection.unmark(REBUILD)
        except CausewayError as error:  # the index was deleted, or the next start repeats the rebuild
            _log.warning("the failure of a rebuild was not stored", why=error.message)

    async def _drop(self, target: Collection) -> None:
        try:
            await self._indexes.discard(target)
        except CausewayError as error:
            _log.warning("the collection of a failed rebuild is removed later", why=error.message)

    def _model(self, name: str) -> EmbeddingModel:
        model = self._models.get(name)
        if model is None:
            raise InvalidRequest(self._models.unknown_message(name), field="settings.embedding_model")
        return model


def _rebuild_conflict(index_name: str, current: Rebuild) -> Conflict:
    return Conflict(
        f"Index '{index_name}' is being rebuilt for the embedding model '{current.embedding_model}'. "
        "Wait until the rebuild has ended.",
        resource=index_name,
    )

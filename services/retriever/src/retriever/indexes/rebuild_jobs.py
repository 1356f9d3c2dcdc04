"""Rebuilds of indexes, in the background: who may ask for one, how far it is, and that it survives a restart.

What was asked for is kept with the index's collection, so that a process that starts, or another one where several
share a store, goes on with it. Who rebuilds an index holds its `REBUILD` mark.
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
from retriever.domain.language import AUTO, LEGACY, checked
from retriever.indexes import rebuild
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.languages.document_words import DocumentWords
from retriever.ports.store import REBUILD, Collection

_log = structlog.get_logger(__name__)

_NOTE_SECONDS = 5.0
_TRIES = 5
_PATIENCE_SECONDS = 10.0
_RESUME_SECONDS = 15.0


class RebuildState(Enum):
    """Where a rebuild stands."""

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
        """Whether both make the same of an index."""
        mine = self.embedding_model, self.language, self.settings
        return mine == (other.embedding_model, other.language, other.settings)

    def over(self, state: RebuildState, error: str = "") -> "Rebuild":
        """The rebuild as it ended now."""
        return msgspec.structs.replace(self, state=state, error=error, finished_at=datetime.now(UTC))


_decoder = msgspec.json.Decoder(Rebuild)


class Rebuilds:
    """Rebuilds indexes under other models, or for texts of another language.

    Args:
        indexes: The indexes.
        models: Those that are configured.
        words: Makes what text search compares.
        patience: Seconds between tries, where a store or a model is away.
    """

    def __init__(
        self,
        indexes: Indexes,
        models: EmbeddingModels,
        words: DocumentWords,
        *,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._indexes = indexes
        self._models = models
        self._words = words
        self._patience = patience
        self._running: dict[Index, asyncio.Task[None]] = {}
        self._progress: dict[Index, Rebuild] = {}
        # Held from the look at what there is to the note of what begins: nobody else begins in between.
        self._beginning = asyncio.Lock()
        self._resuming: asyncio.Task[None] | None = None

    async def create(
        self, principal: Principal, index_name: str, model: str, settings: IndexSettings, language: str = ""
    ) -> IndexSpec:
        """Makes an index with nothing in it; model and language may be empty.

        Raises:
            InvalidRequest: Naming the field.
            Conflict: There is one of this name.
        """
        found = self._model(model) if model else self._models.default
        language = checked(language or AUTO)
        spec = IndexSpec(principal.tenant, index_name, found.name, found.dimension, settings.checked(), language)
        return (await self._indexes.create(spec)).spec

    async def update(
        self, principal: Principal, index_name: str, settings: IndexSettings, names: Iterable[str]
    ) -> IndexSpec:
        """Gives an index other settings, without a rebuild.

        Args:
            principal: Who asks.
            index_name: The index.
            settings: What they are to be.
            names: Which of them; the others stay.

        Raises:
            InvalidRequest: Naming the field.
            NotFound: There is no such index.
            PermissionDenied: The asker is no administrator.
            Conflict: It is being rebuilt, for the settings that it had when that began.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        if not principal.sees_everything:
            raise PermissionDenied("Only administrators can change an index's settings.", resource=index_name)
        wanted = index.spec.settings.changed(settings, names)
        async with self._beginning:
            present = await self._last(index)
            if present is not None and present.state is RebuildState.RUNNING:
                raise _is_being_rebuilt(index_name, present)
            await index.collection.put_settings(wanted)
        return index.spec

    async def begin(
        self, principal: Principal, index_name: str, model: str, settings: IndexSettings, language: str = ""
    ) -> Rebuild:
        """Begins to rebuild an index in the background; asked for the same again it tells how far that is.

        Args:
            principal: Who asks.
            index_name: The index.
            model: Name of the embedding model; empty: the one that it has.
            settings: Those that are set take the place of the index's own, for what is added.

        Raises:
            InvalidRequest: Naming the field.
            NotFound: There is no such index.
            PermissionDenied: The asker is no administrator.
            Conflict: It is being rebuilt otherwise.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        if not principal.sees_everything:
            raise PermissionDenied("Only administrators can have an index rebuilt.", resource=index_name)
        name = self._model(model or index.spec.embedding_model).name
        wanted = index.spec.settings.changed(settings, settings.names())
        has = AUTO if index.spec.language == LEGACY else index.spec.language
        total = len(await index.collection.versions())
        asked = Rebuild(name, wanted, datetime.now(UTC), checked(language or has), total=total)
        async with self._beginning:
            present = await self._last(index)
            if present is not None and present.state is RebuildState.RUNNING:
                if present.same_as(asked):
                    return present
                raise _is_being_rebuilt(index_name, present)
            await index.collection.put_note(msgspec.json.encode(asked))
            self._start(index, asked)
        return asked

    async def last(self, principal: Principal, index_name: str) -> Rebuild:
        """The rebuild that goes on, or the last one.

        Raises:
            NotFound: There is no such index, or it was not rebuilt.
        """
        index = await self._indexes.get(principal.tenant, index_name)
        found = await self._last(index)
        if found is None:
            raise NotFound(f"Index '{index_name}' has not been rebuilt.", resource=index_name)
        return found

    def resume(self) -> None:
        """Goes on in the background with what was begun and is nobody's; with a shared store again and again."""
        self._resuming = asyncio.create_task(self._keep_resuming())

    async def aclose(self) -> None:
        """Stops what goes on; a later start goes on with it."""
        running = [*self._running.values(), *([self._resuming] if self._resuming else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _resume(self, indexes: list[Index]) -> None:
        """Go on with what was begun; take each index off the list that was looked at."""
        while indexes:
            index = indexes[0]
            with contextlib.suppress(NotFound, Replaced):  # it is another one by now, or gone
                async with self._beginning:
                    found = None if index in self._running else await self._last(index)
                    if found is not None and found.state is RebuildState.RUNNING:
                        self._start(index, found)
            indexes.remove(index)

    async def _keep_resuming(self) -> None:
        waiting: list[Index] | None = None
        while True:
            try:
                # All notes are read once. What is interrupted later is told by its mark.
                waiting = await self._indexes.noted() if waiting is None else waiting + self._indexes.interrupted()
                await self._resume(waiting)
            except CausewayError as error:
                _log.warning("rebuilds not looked for", why=error.message)
            except Exception:
                _log.exception("rebuilds not looked for")
            if not self._indexes.is_shared:
                return
            await asyncio.sleep(_RESUME_SECONDS)

    async def _last(self, index: Index) -> Rebuild | None:
        if index in self._progress:
            return self._progress[index]
        note = await index.collection.note()
        return _decoder.decode(note) if note else None

    def _start(self, index: Index, asked: Rebuild) -> None:
        self._running[index] = asyncio.create_task(self._run(index, asked))

    async def _run(self, index: Index, asked: Rebuild) -> None:
        log = _log.bind(index=index.spec.name, embedding_model=asked.embedding_model)
        try:
            await index.collection.mark(REBUILD)
        except CausewayError as error:
            log.debug("another process rebuilds it", why=error.message)
            del self._running[index]
            return
        self._progress[index] = asked
        try:
            await self._try(index, asked, log.info)
            log.info("index rebuilt")
        except CausewayError as error:
            log.warning("index not rebuilt; it is as it was", why=error.message)
            await self._failed(index, error.message)
        except Exception:
            log.exception("index not rebuilt; it is as it was")
            await self._failed(index, "The service met an unexpected error; its log says which.")
        finally:
            del self._running[index]
            self._progress.pop(index, None)

    async def _try(self, index: Index, asked: Rebuild, tell: Callable[..., object]) -> None:
        model = self._model(asked.embedding_model)
        spec = IndexSpec(
            index.spec.tenant, index.spec.name, model.name, model.dimension, asked.settings, asked.language
        )
        for left in reversed(range(_TRIES)):
            target = await self._indexes.begin_beside(spec)
            try:
                tell("rebuilding an index", documents=asked.total)
                await rebuild.run(
                    self._indexes,
                    index,
                    target,
                    rebuild.Anew(index.collection, target, model.passages, self._words),
                    partial(self._note_success, index, target),
                    self._noting(index),
                )
                return
            except Unavailable as error:
                await self._drop(target)
                if not left or not await index.collection.is_current():
                    raise
                tell("rebuilding an index is tried again", why=error.message)
                await asyncio.sleep(self._patience)
            except BaseException:
                await asyncio.shield(self._drop(target))
                raise

    async def _note_success(self, index: Index, target: Collection) -> None:
        await target.put_note(msgspec.json.encode(self._progress[index].over(RebuildState.SUCCEEDED)))

    def _noting(self, index: Index) -> Callable[[int, int], Awaitable[None]]:
        loop = asyncio.get_running_loop()
        noted = loop.time()

        async def done(documents: int, total: int) -> None:
            nonlocal noted
            progress = msgspec.structs.replace(self._progress[index], done=documents, total=total)
            self._progress[index] = progress
            if self._indexes.is_shared and loop.time() > noted + _NOTE_SECONDS:  # others may be asked how far it is
                noted = loop.time()
                await index.collection.put_note(msgspec.json.encode(progress))

        return done

    async def _failed(self, index: Index, why: str) -> None:
        try:
            await index.collection.put_note(
                msgspec.json.encode(self._progress[index].over(RebuildState.FAILED, why))
            )
            await index.collection.unmark(REBUILD)
        except CausewayError as error:  # the index is gone, or will be tried again after the next start
            _log.warning("that an index was not rebuilt is not noted", why=error.message)

    async def _drop(self, target: Collection) -> None:
        try:
            await self._indexes.discard(target)
        except CausewayError as error:
            _log.warning("what a rebuild has left is removed later", why=error.message)

    def _model(self, name: str) -> EmbeddingModel:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(f"'{each.name}'" for each in self._models)
            raise InvalidRequest(
                f"No such embedding model: '{name}'. Configured are: {known}.{self._models.hint(name)}",
                field="settings.embedding_model",
            )
        return model


def _is_being_rebuilt(index_name: str, present: Rebuild) -> Conflict:
    return Conflict(
        f"Index '{index_name}' is being rebuilt for the embedding model '{present.embedding_model}'.",
        resource=index_name,
    )

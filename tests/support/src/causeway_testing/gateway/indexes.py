"""Fakes of `ports.index_management`: indexes in memory. Submitted texts are stored immediately."""

import asyncio
import hashlib
import posixpath
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from gateway.domain.documents import Job
from gateway.domain.embeddings import EmbeddingModel, Embeddings
from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary, StoredSnapshot
from gateway.domain.text_documents import DocumentPage, Equals, ListedDocument, TextDocument, TextOutcome
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Conflict, InvalidRequest, NotFound
from servicekit.principal import Principal

Documents = dict[str, ListedDocument]


@dataclass(slots=True)
class FakeIndexes:
    """Indexes in memory.

    Attributes:
        indexes: The documents of each index.
        snapshots: The documents of each snapshot, by path.
        made: The settings of each created index.
        rebuilds: The last rebuild of each index.
    """

    indexes: dict[str, Documents] = field(default_factory=dict)
    snapshots: dict[str, Documents] = field(default_factory=dict)
    made: dict[str, IndexSettings] = field(default_factory=dict)
    rebuilds: dict[str, IndexRebuild] = field(default_factory=dict)

    async def summaries(self, principal: Principal, deadline: Deadline) -> tuple[IndexSummary, ...]:
        """See `ports.index_management.Indexes`."""
        return tuple([await self.summary(principal, name, deadline) for name in sorted(self.indexes)])

    async def summary(self, principal: Principal, index: str, deadline: Deadline) -> IndexSummary:
        """See `ports.index_management.Indexes`. A document counts as one chunk."""
        count = len(self.there(index))
        return IndexSummary(index, self.made.get(index, IndexSettings("fake-embedder")), count, count)

    async def documents(
        self,
        principal: Principal,
        index: str,
        *,
        offset: int,
        limit: int,
        text_length: int,
        conditions: Sequence[Equals],
        deadline: Deadline,
    ) -> DocumentPage:
        """See `ports.index_management.Indexes`. Conditions with nested keys are not supported."""
        found = [
            document
            for _, document in sorted(self.there(index).items())
            if all(_meets(document, condition) for condition in conditions)
        ]
        listed = tuple(
            replace(each, text=each.text[:text_length], is_truncated=len(each.text) > text_length)
            for each in found[offset : offset + limit]
        )
        return DocumentPage(listed, len(found))

    async def delete(self, principal: Principal, index: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        self.there(index)
        del self.indexes[index]

    async def create(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexSettings:
        """See `ports.index_management.Indexes`."""
        made = _with_known_model(settings)
        if index in self.indexes:
            raise Conflict(f"Index '{index}' exists already.", resource=index)
        self.indexes[index], self.made[index] = {}, made
        return made

    async def update(
        self,
        principal: Principal,
        index: str,
        settings: IndexSettings,
        names: Collection[str],
        deadline: Deadline,
    ) -> IndexSettings:
        """See `ports.index_management.Indexes`."""
        if fixed := [each for each in ("embedding", "language") if each in names]:
            raise InvalidRequest(f"'{fixed[0]}' cannot be changed in place.", field=fixed[0])
        old = (await self.summary(principal, index, deadline)).settings
        self.made[index] = replace(old, **{name: getattr(settings, name) for name in names})
        return self.made[index]

    async def rebuild(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexRebuild:
        """See `ports.index_management.Indexes`. `last_rebuild` then reports success."""
        count = len(self.there(index))
        began = IndexRebuild("running", _with_known_model(settings), 0, count, "", "2026-01-01T00:00:00Z", "")
        self.rebuilds[index] = replace(
            began, state="succeeded", documents_done=count, finished_at="2026-01-01T00:00:01Z"
        )
        self.made[index] = began.settings
        return began

    async def last_rebuild(self, principal: Principal, index: str, deadline: Deadline) -> IndexRebuild:
        """See `ports.index_management.Indexes`."""
        self.there(index)
        if index not in self.rebuilds:
            raise NotFound(f"Index '{index}' has not been rebuilt.", resource=index)
        return self.rebuilds[index]

    async def persist(self, principal: Principal, index: str, path: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        self.snapshots[posixpath.join(_check_path(path), index)] = dict(self.there(index))

    async def list_snapshots(self, principal: Principal, deadline: Deadline) -> tuple[StoredSnapshot, ...]:
        """See `ports.index_management.Indexes`."""
        return tuple(
            StoredSnapshot(path, path.rpartition("/")[2], len(there), len(there), 4096, "2026-01-01T00:00:00Z")
            for path, there in sorted(self.snapshots.items())
        )

    async def delete_snapshot(self, principal: Principal, path: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        if self.snapshots.pop(_check_path(path), None) is None:
            raise NotFound(f"There is no snapshot at {path!r}.", resource=path)

    async def load(
        self, principal: Principal, index: str, path: str, deadline: Deadline, *, overwrite: bool = False
    ) -> None:
        """See `ports.index_management.Indexes`."""
        snapshot_path = posixpath.join(_check_path(path), index)
        if snapshot_path not in self.snapshots:
            raise NotFound(f"Path does not exist: {snapshot_path}", resource=snapshot_path)
        if index in self.indexes and not overwrite:
            raise Conflict(f"Index '{index}' exists.", resource=index)
        self.indexes[index] = dict(self.snapshots[snapshot_path])

    def there(self, index: str) -> Documents:
        """Return the documents of an index.

        Raises:
            NotFound: The index does not exist.
        """
        if index not in self.indexes:
            raise NotFound(f"No such index: '{index}' exists.", field="index", resource=index)
        return self.indexes[index]


def _with_known_model(settings: IndexSettings) -> IndexSettings:
    if settings.embedding not in (None, "fake-embedder", "other-embedder"):
        raise InvalidRequest(f"No such embedding model: '{settings.embedding}'.", field="embedding")
    return replace(settings, embedding=settings.embedding or "fake-embedder")


def _meets(document: ListedDocument, condition: Equals) -> bool:
    value = msgspec.json.decode(document.metadata_json).get(condition.key)
    return bool(value == msgspec.json.decode(condition.json_value))


def _check_path(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidRequest("The path is outside the directory of snapshots.", field="path")
    return path


@dataclass(slots=True)
class FakeTexts:
    """Stores submitted texts immediately. Their job ends as ``succeeded``, or ``unchanged`` if none was stored.

    Attributes:
        failure: An error that `submit` raises, or None.
        job_failure: An error that `finished` raises, or None.
        stuck: Whether jobs remain queued.
        gate: An event that `finished` awaits, or None.
        waiting: The number of calls that await `gate`.
        outcomes: The outcomes of each job's texts, by the job's id.
    """

    indexes: FakeIndexes
    submitted: list[tuple[str, tuple[TextDocument, ...]]] = field(default_factory=list)
    failure: CausewayError | None = None
    job_failure: CausewayError | None = None
    stuck: bool = False
    gate: asyncio.Event | None = None
    waiting: int = 0
    outcomes: dict[str, tuple[TextOutcome, ...]] = field(default_factory=dict)

    async def submit(
        self,
        principal: Principal,
        index: str,
        documents: Sequence[TextDocument],
        deadline: Deadline,
        *,
        existing_only: bool = False,
    ) -> Job:
        """See `ports.index_management.Texts`."""
        keys.index_name(index)
        if self.failure is not None:
            raise self.failure
        self.submitted.append((index, tuple(documents)))
        there = self.indexes.indexes.setdefault(index, {})
        job = Job(
            id=uuid.uuid4().hex,
            state="queued",
            index=index,
            document_id="",
            sourcefile="",
            created_at="2026-01-01T00:00:00Z",
            updated_at="2026-01-01T00:00:00Z",
            trace_id="",
        )
        self.outcomes[job.id] = tuple(_put(there, document, existing_only) for document in documents)
        return job

    async def finished(self, principal: Principal, job: Job, deadline: Deadline) -> Job:
        """See `ports.index_management.Texts`."""
        if self.gate is not None:
            self.waiting += 1
            try:
                await self.gate.wait()
            finally:
                self.waiting -= 1
        if self.job_failure is not None:
            raise self.job_failure
        if self.stuck:
            return job
        outcomes = self.outcomes[job.id]
        state = "succeeded" if TextOutcome.STORED in outcomes else "unchanged"
        return replace(job, state=state, outcomes=outcomes)


def _put(there: Documents, document: TextDocument, existing_only: bool) -> TextOutcome:
    if existing_only and document.document_id not in there:
        return TextOutcome.NOT_FOUND
    listed = ListedDocument(
        document.document_id, document.text, document.metadata_json, document.sha256, is_truncated=False
    )
    if there.get(document.document_id) == listed:
        return TextOutcome.UNCHANGED
    there[document.document_id] = listed
    return TextOutcome.STORED


@dataclass(slots=True)
class FakeEmbedder:
    """An embedding model with two dimensions. A word is a token."""

    calls: int = 0

    async def embed(self, principal: Principal, model: str, texts: Sequence[str], deadline: Deadline) -> Embeddings:
        """See `ports.index_management.Embedder`."""
        self.calls += 1
        if model not in ("", "fake-embedder"):
            raise NotFound(f"No such model: '{model}'.", resource=model)
        for text in texts:
            if not text.strip():
                raise InvalidRequest("A text is blank.", field="texts")
        vectors = tuple(
            (0.6, 0.8) if hashlib.sha256(text.encode()).digest()[0] % 2 else (0.8, 0.6) for text in texts
        )
        return Embeddings("fake-embedder", vectors, sum(len(text.split()) for text in texts))

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[EmbeddingModel, ...]:
        """See `ports.index_management.Embedder`."""
        return (EmbeddingModel("fake-embedder", 2, 256),)

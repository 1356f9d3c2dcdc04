"""What the gateway needs of other services. Adapters: `clients`. Fakes: `fakes`. Both pass the same tests."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.conversations import Conversation, ConversationPage
from gateway.documents import Job, Removal, StoredDocument, StoredPage, Upload
from gateway.domain import (
    Batch,
    Chunking,
    Detector,
    DetectorFailure,
    DetectorInfo,
    Direction,
    Finding,
    Found,
    Message,
    Model,
    Passage,
    Policy,
    Retrieval,
    Surroundings,
    TokenCounts,
    Verdict,
)


class Retriever(Protocol):
    """Finds passages."""

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> Found:
        """The best passages for a query, best first, in a reranker's order where one is wanted and runs.

        Raises:
            NotFound: An index does not exist for the principal.
            InvalidRequest: The query is blank.
        """
        ...

    async def require(self, principal: Principal, indexes: Sequence[str], deadline: Deadline) -> None:
        """Nothing where the indexes exist.

        Raises:
            NotFound: One does not, for the principal.
        """
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked; ``passthrough_json`` stands instead of everything but principal and model.

    ``plain``: the one message is a text to go on with, and the parameters are those of a text completion.
    """

    principal: Principal
    model: str
    question: str = ""
    messages: tuple[Message, ...] = ()
    sources: tuple[Passage, ...] = ()
    parameters_json: bytes = b"{}"
    passthrough_json: bytes = b""
    plain: bool = False


class Generator(Protocol):
    """Asks models."""

    def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """The answer's events, in batches as they arrive. Closing the iterator stops the model.

        Raises:
            UpstreamRejected, NotFound, Unavailable, DeadlineExceeded: From the first step, or from a later one.
        """
        ...

    async def count_tokens(
        self,
        principal: Principal,
        model: str,
        texts: Sequence[str],
        messages: Sequence[Message],
        deadline: Deadline,
    ) -> TokenCounts:
        """Numbers of tokens as the model counts them."""
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """The models, the default one first."""
        ...


@dataclass(frozen=True, slots=True)
class Clearance:
    """How far a growing text may be released, and what was found up to there.

    ``judged``: the choice is complete, and all of it is judged.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...]
    blocked: bool
    failures: tuple[DetectorFailure, ...] = ()
    judged: bool = False


class Watch(Protocol):
    """Detectors at work on the growing texts of one answer."""

    async def feed(self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"") -> None:
        """Appends to a choice's text; waits while the detectors are behind.

        Args:
            choice: Which.
            text: What is appended; may be empty.
            last: The choice is complete.
            reply_json: With the last piece: the members of the message beside its content, one JSON object.
        """
        ...

    async def end(self) -> None:
        """Nothing more will be fed."""
        ...

    def clearances(self) -> AsyncGenerator[Clearance, None]:
        """What may be released, as it becomes known; ends when all is judged."""
        ...


_NONE = Surroundings()


class Guardrails(Protocol):
    """Judges texts."""

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        deadline: Deadline,
        surroundings: Surroundings = _NONE,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """One verdict a text.

        Raises:
            NotFound: No such detector.
            InvalidRequest: A detector's parameters are wrong.
        """
        ...

    def watch(
        self,
        principal: Principal,
        detectors: Sequence[Detector],
        deadline: Deadline,
        surroundings: Surroundings = _NONE,
        chunking: Chunking | None = None,
    ) -> AbstractAsyncContextManager[Watch]:
        """Judges the model's texts while they grow.

        Args:
            principal: Who asks.
            detectors: What judges.
            deadline: When it must be over.
            surroundings: What the texts stand in.
            chunking: Where they may be cut, and that text waits for the detectors that only report, too; None: cut
                anywhere, and only those that protect it hold it back.
        """
        ...

    async def policy(self, deadline: Deadline) -> Policy | None:
        """The policy that the service has been given; None where it has none."""
        ...

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """The detectors that can be asked for, ordered by id; ``health``: and how they are, which takes a while."""
        ...


class Ingest(Protocol):
    """Takes documents in."""

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        """Stores the original, enqueues its job and returns it; what is returned is not lost.

        Raises:
            Unavailable: The queue cannot be reached, or is full; nothing was accepted.
            RateLimited: Too many jobs of the tenant wait already.
        """
        ...

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """A job as it stands now.

        Raises:
            NotFound: No such job of this tenant.
        """
        ...


class Catalogue(Protocol):
    """Knows the documents of the indexes."""

    async def remove(
        self, principal: Principal, index: str, document_ids: Sequence[str], deadline: Deadline
    ) -> Removal:
        """Removes documents with all their chunks.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def find(
        self, principal: Principal, index: str, values: Mapping[str, str], deadline: Deadline
    ) -> tuple[StoredDocument, ...]:
        """The documents whose fields have these values, as far as the principal may see them.

        Args:
            principal: Who asks.
            index: Where to look.
            values: By field: ``sourcefile``, ``category``, ``metadata.<key>``.
            deadline: When it must be over.

        Raises:
            NotFound: The index does not exist for the principal.
        """
        ...

    async def page(
        self, principal: Principal, index: str, count: int, token: str, deadline: Deadline
    ) -> StoredPage:
        """Some of the documents of an index that the principal may see.

        Raises:
            NotFound: The index does not exist for the principal.
            InvalidRequest: The token is none that a page had.
        """
        ...


class Originals(Protocol):
    """Has the originals of documents."""

    def open(
        self, principal: Principal, name: str, size_bytes: int, deadline: Deadline
    ) -> AbstractAsyncContextManager[Path]:
        """A file with an original's bytes, until the block is left. Who may see it is for others to ask.

        Raises:
            NotFound: There is none.
            Unavailable: It cannot be fetched now.
        """
        ...

    async def forget(self, principal: Principal, index: str, names: Sequence[str]) -> None:
        """Removes originals, once their documents are gone; those that came into another index stay.

        It raises nothing: what is left behind leads nowhere any more, and is logged.
        """
        ...


class Pictures(Protocol):
    """Has pictures of documents' pages."""

    async def read(self, principal: Principal, passage: Passage, deadline: Deadline) -> bytes | None:
        """The JPEG of the page that a passage stands on; None where there is none. Who may see it is for others to
        ask: a passage that was found is the caller's to see.

        Raises:
            Unavailable, DeadlineExceeded: It cannot be fetched now.
        """
        ...

    async def forget(self, principal: Principal, index: str, document_ids: Sequence[str] | None = None) -> None:
        """Removes the pictures of documents, or of the whole index, once these are gone.

        It raises nothing: what is left behind leads nowhere any more, and is logged.
        """
        ...


class History(Protocol):
    """Keeps each user's conversations."""

    async def save(
        self, principal: Principal, conversation_id: str, title: str, answers_json: bytes, deadline: Deadline
    ) -> Conversation:
        """Keeps a conversation, in the place of what was kept of it.

        Raises:
            PayloadTooLarge: It is longer than what can be kept.
            Conflict: There are too many.
        """
        ...

    async def read(self, principal: Principal, conversation_id: str, deadline: Deadline) -> bytes:
        """What was said, as it was saved.

        Raises:
            NotFound: No such conversation of this user.
        """
        ...

    async def page(self, principal: Principal, count: int, token: str, deadline: Deadline) -> ConversationPage:
        """A page of the user's conversations.

        Raises:
            InvalidRequest: The token is none that a page had.
        """
        ...

    async def delete(self, principal: Principal, conversation_id: str, deadline: Deadline) -> None:
        """Forgets a conversation.

        Raises:
            NotFound: No such conversation of this user.
        """
        ...


class Probe(Protocol):
    """Says whether a dependency answers."""

    name: str

    async def check(self, deadline: Deadline) -> str | None:
        """None when it answers, else what is wrong."""
        ...

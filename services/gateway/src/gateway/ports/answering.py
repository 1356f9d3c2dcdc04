"""What the gateway needs of other services. Adapters: `clients`. Fakes: `causeway_testing.gateway`.

Adapters and fakes pass the same tests.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain import (
    Batch,
    Chunking,
    DetectionContext,
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
    ``in_one_piece``: a model server that can is asked for no stream; its answer is one `Completion`.
    ``unary``: a model server that can is asked for no stream; the events are the same.
    """

    principal: Principal
    model: str
    question: str = ""
    messages: tuple[Message, ...] = ()
    sources: tuple[Passage, ...] = ()
    parameters_json: bytes = b"{}"
    passthrough_json: bytes = b""
    plain: bool = False
    in_one_piece: bool = False
    unary: bool = False


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

    def known(self, model: str) -> TokenCounts | None:
        """What the last count of this model's tokens told of the model, without counts; None where that was a while
        ago.

        It spares a call where the window decides without counts.
        """
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """The models, the default one first."""
        ...


@dataclass(frozen=True, slots=True)
class Clearance:
    """How far a growing text may be released, and what was found up to there.

    ``judged``: the choice is complete, and all of it is judged. A text beside a choice that is judged and not
    cleared is one that no detector which redacts or blocks looks at.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...]
    blocked: bool
    failures: tuple[DetectorFailure, ...] = ()
    judged: bool = False


class Watch(Protocol):
    """Detectors at work on the growing texts of one answer."""

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", beside: bool = False
    ) -> None:
        """Appends to a choice's text; waits while the detectors are behind.

        Args:
            choice: Which.
            text: What is appended; may be empty.
            last: The choice is complete.
            reply_json: With the last piece: the members of the message beside its content, one JSON object.
            beside: The text is beside the content of a choice, and has a number of its own: only detectors that
                look at texts by themselves judge it.
        """
        ...

    async def end(self) -> None:
        """Nothing more will be fed."""
        ...

    def clearances(self) -> AsyncGenerator[Clearance, None]:
        """What may be released, as it becomes known; ends when all is judged."""
        ...


_NONE = DetectionContext()


class Guardrails(Protocol):
    """Judges texts."""

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        deadline: Deadline,
        context: DetectionContext = _NONE,
        *,
        beside: bool = False,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """One verdict a text; ``beside``: only by detectors that look at texts by themselves, as of `Watch.feed`.

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
        context: DetectionContext = _NONE,
        chunking: Chunking | None = None,
    ) -> AbstractAsyncContextManager[Watch]:
        """Judges the model's texts while they grow.

        Args:
            principal: Who asks.
            detectors: What judges.
            deadline: When it must be over.
            context: What the texts stand in.
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

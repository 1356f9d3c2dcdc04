"""The services that answer a question. Adapters: `clients`. Fakes: `causeway_testing.gateway`.

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
        """Return the best passages for a query, best first; in a reranker's order if one is wanted and runs.

        Raises:
            NotFound: An index does not exist for the principal.
            InvalidRequest: The query is blank.
        """
        ...

    async def require(self, principal: Principal, indexes: Sequence[str], deadline: Deadline) -> None:
        """Check that the indexes exist.

        Raises:
            NotFound: An index does not exist for the principal.
        """
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model; ``passthrough_json`` replaces everything but the principal and the model.

    ``plain``: the only message is a text to continue, and the parameters are those of a text completion.
    ``in_one_piece``: call the model server without streaming, if it can; the answer is one `Completion`.
    ``unary``: call the model server without streaming, if it can; the events are the same.
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
    """Calls models."""

    def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """Yield the answer's events, in batches as they arrive. Closing the iterator stops the model.

        Raises:
            UpstreamRejected, NotFound, Unavailable, DeadlineExceeded: At the first step, or at a later one.
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
        """Count tokens as the model counts them."""
        ...

    def known(self, model: str) -> TokenCounts | None:
        """Return the properties of the model from its last count, without counts; None if that is too old.

        It saves a call when the context window alone decides.
        """
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """Return the models, the default one first."""
        ...


@dataclass(frozen=True, slots=True)
class Clearance:
    """How far a growing text may be released, with the findings up to there.

    ``judged``: the choice is complete and fully judged. If a text beside a choice is judged and not cleared, no
    detector that redacts or blocks judges it.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...]
    blocked: bool
    failures: tuple[DetectorFailure, ...] = ()
    judged: bool = False


class Watch(Protocol):
    """Detectors that judge the growing texts of one answer."""

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", beside: bool = False
    ) -> Sequence[Clearance]:
        """Append to a choice's text; wait while too much text waits for the detectors.

        Return what may be released, as far as it is known at once. `clearances` yields the rest.

        Args:
            choice: The number of the choice.
            text: The text to append; may be empty.
            last: The choice is complete.
            reply_json: With the last piece: the members of the message beside its content, one JSON object.
            beside: The text is not the content of a choice and has its own number: only detectors that judge
                texts by themselves judge it.
        """
        ...

    async def end(self) -> None:
        """End the input: no more text is fed."""
        ...

    def clearances(self) -> AsyncGenerator[Clearance, None]:
        """Yield what may be released and `feed` has not returned, as soon as it is known.

        End when everything is judged.
        """
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
        """Return one verdict per text; ``beside``: only from detectors that judge texts by themselves.

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
        """Judge the model's texts while they grow.

        Args:
            principal: The caller.
            detectors: The detectors that judge.
            deadline: When the work must be done.
            context: The context of the texts.
            chunking: Where to cut the texts; then the text also waits for detectors that only report. None: cut
                anywhere; only detectors that redact or block delay the text.
        """
        ...

    async def policy(self, deadline: Deadline) -> Policy | None:
        """Return the policy that the service is configured with; None without a policy."""
        ...

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """Return the available detectors, ordered by id; ``health`` also checks their health (slow)."""
        ...


class Pictures(Protocol):
    """Stores pictures of documents' pages."""

    async def read(self, principal: Principal, passage: Passage, deadline: Deadline) -> bytes | None:
        """Return the JPEG of the page of a passage; None if no picture is stored.

        It checks no permission: the caller may see each passage that a search found.

        Raises:
            Unavailable, DeadlineExceeded: The store does not answer.
        """
        ...

    async def forget(self, principal: Principal, index: str, document_ids: Sequence[str] | None = None) -> None:
        """Remove the pictures of documents, or of the whole index, after these are deleted.

        It raises nothing: a picture that remains has no document, so no caller can reach it. The failure is logged.
        """
        ...

"""The interfaces for answers: retriever, generator, guardrails, and the store of page pictures."""

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
    Message,
    Model,
    Passage,
    Policy,
    Retrieval,
    SearchResults,
    TokenCounts,
    Verdict,
)


class Retriever(Protocol):
    """Finds passages."""

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> SearchResults:
        """Return the best passages for a query, best first. A reranker orders them if requested and available.

        Raises:
            NotFound: An index does not exist for the principal.
            InvalidRequest: The query is blank.
        """
        ...

    async def check_indexes(self, principal: Principal, indexes: Sequence[str], deadline: Deadline) -> None:
        """Check that the indexes exist.

        Raises:
            NotFound: An index does not exist for the principal.
        """
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to a model.

    Attributes:
        principal: The caller.
        model: The name of the model, or empty for the default model.
        question: The question, for models that only quote their sources.
        messages: The messages for the model.
        sources: The passages, for models that only quote their sources.
        parameters_json: Members of an OpenAI request for the model, one object.
        passthrough_json: An OpenAI request to send unchanged, or empty. It replaces all attributes after ``model``.
        plain: Whether the only message is a text to continue. Then the parameters are the parameters of a text
            completion.
        in_one_piece: Whether to call the model server without streaming, if possible. The answer is one
            `Completion`.
        unary: Whether to call the model server without streaming, if possible. The events are the same as with
            streaming.
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
            UpstreamRejected: The model server refused the request.
            NotFound: The model does not exist.
            Unavailable: The generator or the model server is not available, also during the answer.
            DeadlineExceeded: The deadline has passed, also during the answer.
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
        """Return the numbers of tokens of texts and of a conversation, as the model counts them.

        Raises:
            NotFound: The model does not exist.
            Unavailable: The generator or the model server is not available.
        """
        ...

    def recent_properties(self, model: str) -> TokenCounts | None:
        """Return the properties of the model as of its last token count, or None if they are too old.

        The result contains no counts. The function makes no call.
        """
        ...

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """Return the models, the default model first."""
        ...


@dataclass(frozen=True, slots=True)
class Clearance:
    """A permission to release a part of a growing text.

    Attributes:
        choice: The number of the choice, or of another text of the answer.
        cleared_until: The offset up to which the text may be released, in code points.
        findings: The findings up to this offset.
        blocked: Whether a detector blocks the answer.
        failures: The detectors that failed.
        fully_judged: Whether the text is complete and the detectors have judged all of it. A text that is not the
            content of a choice is judged but never cleared if the answer has redacting or blocking detectors and
            none of them can judge such texts.
    """

    choice: int
    cleared_until: int
    findings: tuple[Finding, ...]
    blocked: bool
    failures: tuple[DetectorFailure, ...] = ()
    fully_judged: bool = False


class Watch(Protocol):
    """Detectors that judge the growing texts of one answer."""

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        """Append a piece to a text. Return the clearances that are known immediately.

        `clearances` yields all other clearances.

        The call waits while the detectors have too much text to judge.

        Args:
            choice: The number of the choice, or of another text of the answer.
            text: The text to append; may be empty.
            last: Whether the text is complete.
            reply_json: With the last piece: the members of the message other than its content, one JSON object.
            auxiliary: Whether the text is not the content of a choice. Only detectors that judge a text without its
                context judge it.
        """
        ...

    async def end(self) -> None:
        """End the input. No call to `feed` follows."""
        ...

    def clearances(self) -> AsyncGenerator[Clearance, None]:
        """Yield each clearance that `feed` has not returned. End after the detectors have judged all texts."""
        ...


_NO_CONTEXT = DetectionContext()


class Guardrails(Protocol):
    """Judges texts."""

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        deadline: Deadline,
        context: DetectionContext = _NO_CONTEXT,
        *,
        auxiliary: bool = False,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """Return one verdict per text, and the tolerated failures of detectors.

        With ``auxiliary``, only detectors that judge a text without its context judge the texts.

        Raises:
            NotFound: A detector does not exist.
            InvalidRequest: A detector's parameters are invalid.
        """
        ...

    def watch(
        self,
        principal: Principal,
        detectors: Sequence[Detector],
        deadline: Deadline,
        context: DetectionContext = _NO_CONTEXT,
        chunking: Chunking | None = None,
    ) -> AbstractAsyncContextManager[Watch]:
        """Return a context manager that judges the model's texts while they grow.

        Args:
            principal: The caller.
            detectors: The detectors that judge.
            deadline: The time by which the work must end.
            context: The context of the texts.
            chunking: The positions at which the detectors may divide the texts. The texts then also wait for
                detectors that only report. None allows any position, and only detectors that redact or block delay
                the texts.
        """
        ...

    async def policy(self, deadline: Deadline) -> Policy | None:
        """Return the configured policy of the service, or None without a policy."""
        ...

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """Return the available detectors, ordered by id. ``health`` also checks their health, which is slow."""
        ...


class Pictures(Protocol):
    """Stores pictures of documents' pages."""

    async def read(self, principal: Principal, passage: Passage, deadline: Deadline) -> bytes | None:
        """Return the JPEG of the page of a passage, or None if no picture is stored.

        The function checks no permission, because the caller may see each passage that a search found.

        Raises:
            Unavailable: The store is not available.
            DeadlineExceeded: The deadline has passed.
        """
        ...

    async def forget(self, principal: Principal, index: str, document_ids: Sequence[str] | None = None) -> None:
        """Remove the pictures of deleted documents, or of a deleted index.

        The function logs a failure and does not raise it. A remaining picture has no document, so no caller can
        read it.
        """
        ...

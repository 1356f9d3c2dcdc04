"""Fakes of the ports of answering: they follow a script, work in memory, and record their calls."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.domain import (
    Action,
    Batch,
    Chunking,
    Delta,
    DetectionContext,
    Detector,
    DetectorFailure,
    DetectorInfo,
    DetectorKind,
    Direction,
    Finding,
    Finish,
    Message,
    Model,
    Policy,
    Start,
    TokenCounts,
    Usage,
    Verdict,
)
from gateway.domain.documents import AccessChange, Job, Upload
from gateway.ports.answering import Clearance, Prompt, Watch
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, NotFound
from servicekit.principal import Principal


@dataclass(slots=True)
class FakeGenerator:
    """A generator that answers with a script, and records every prompt.

    Attributes:
        script: Batches of events, and errors, which the generator raises.
        scripts: The scripts for the first prompts, in order.
        gate: An optional event that the generator awaits before each batch except the first.
        window: The context window. A word is a token.
        closed: The number of answers that have ended.
        only_quotes: The value in the token counts.
        takes_pictures: The value in the token counts.
        calls_tools: The value in the token counts.
        offered: The listed models; empty: the model ``fake``.
        counted_models: The models for which tokens were counted.
    """

    script: list[Batch | CausewayError] = field(default_factory=list)
    gate: asyncio.Event | None = None
    window: int = 8192
    prompts: list[Prompt] = field(default_factory=list)
    closed: int = 0
    scripts: deque[list[Batch | CausewayError]] = field(default_factory=deque)
    only_quotes: bool = False
    takes_pictures: bool = False
    calls_tools: bool = False
    offered: tuple[Model, ...] = ()
    counted_models: set[str] = field(default_factory=set)

    @classmethod
    def saying(cls, *texts: str) -> "FakeGenerator":
        """Return a generator that answers with these pieces of text."""
        return cls(cls.words(*texts))

    @staticmethod
    def words(*texts: str) -> list[Batch | CausewayError]:
        """Return a script with these pieces of text."""
        script: list[Batch | CausewayError] = [[Start(b'{"model":"fake"}')]]
        script += [[Delta(0, text)] for text in texts]
        return [*script, [Finish(0, "stop"), Usage(7, len(texts))]]

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """See `ports.answering.Generator`."""
        self.prompts.append(prompt)
        try:
            for number, step in enumerate(self.scripts.popleft() if self.scripts else self.script):
                if number and self.gate is not None:
                    await self.gate.wait()
                if isinstance(step, CausewayError):
                    raise step
                yield step
                await asyncio.sleep(0)
        finally:
            self.closed += 1

    async def count_tokens(
        self,
        principal: Principal,
        model: str,
        texts: Sequence[str],
        messages: Sequence[Message],
        deadline: Deadline,
    ) -> TokenCounts:
        """See `ports.answering.Generator`."""
        counts = tuple(len(text.split()) for text in texts)
        total = sum(len(message.text.split()) for message in messages)
        self.counted_models.add(model)
        return TokenCounts(counts, total, self.window, self.only_quotes, self.takes_pictures, self.calls_tools)

    def recent_properties(self, model: str) -> TokenCounts | None:
        """See `ports.answering.Generator`."""
        if model not in self.counted_models:
            return None
        return TokenCounts((), 0, self.window, self.only_quotes, self.takes_pictures, self.calls_tools)

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """See `ports.answering.Generator`."""
        return self.offered or (
            Model("fake", self.window, "tests", 0, ready=True, takes_pictures=self.takes_pictures),
        )


_NONE = DetectionContext()


@dataclass(slots=True)
class FakeGuardrails:
    """A guardrails service with one detector, ``words``, which finds secret words.

    It clears a growing text up to the position at which a secret word may begin.

    Attributes:
        words: The secret words.
        judged_texts: The judged texts, and the pieces of growing texts.
        context: The context of each call.
        rules: The policy of the service.
    """

    words: tuple[str, ...] = ("secret",)
    judged_texts: list[str] = field(default_factory=list)
    context: list[DetectionContext] = field(default_factory=list)
    rules: Policy | None = None

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        deadline: Deadline,
        context: DetectionContext = _NONE,
        *,
        auxiliary: bool = False,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """See `ports.answering.Guardrails`."""
        self.judged_texts += texts
        self.context.append(context)
        action = _action(detectors)
        verdicts = []
        for text in texts:
            findings = tuple(self._find(text, action))
            verdicts.append(Verdict(action if findings else None, findings, self._redact(text)))
        return tuple(verdicts), ()

    @asynccontextmanager
    async def watch(
        self,
        principal: Principal,
        detectors: Sequence[Detector],
        deadline: Deadline,
        context: DetectionContext = _NONE,
        chunking: Chunking | None = None,
    ) -> AsyncIterator[Watch]:
        """See `ports.answering.Guardrails`."""
        self.context.append(context)
        yield _FakeWatch(self, _action(detectors))

    async def policy(self, deadline: Deadline) -> Policy | None:
        """See `ports.answering.Guardrails`."""
        return self.rules

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """See `ports.answering.Guardrails`."""
        return (DetectorInfo("words", DetectorKind.CONTENTS, healthy=True if health else None),)

    def _find(self, text: str, action: Action) -> list[Finding]:
        found = []
        for word in self.words:
            start = text.find(word)
            while start >= 0:
                end = start + len(word)
                found.append(Finding("words", "word", word, 1.0, action, start, end, word, "[REDACTED]"))
                start = text.find(word, end)
        return sorted(found, key=lambda finding: finding.start or 0)

    def _redact(self, text: str) -> str:
        for word in self.words:
            text = text.replace(word, "[REDACTED]")
        return text

    def held(self, text: str) -> int:
        """Return the number of code points at the end of a text that may be the beginning of a secret word."""
        starts = (word[:length] for word in self.words for length in range(len(word) - 1, 0, -1))
        return max((len(start) for start in starts if text.endswith(start)), default=0)


class _FakeWatch:
    def __init__(self, guardrails: FakeGuardrails, action: Action) -> None:
        self._guardrails = guardrails
        self._action = action
        self._texts: dict[int, str] = {}
        self._known: dict[int, int] = {}
        self._out: deque[Clearance | None] = deque()
        self._ready = asyncio.Event()

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        whole = self._texts[choice] = self._texts.get(choice, "") + text
        self._guardrails.judged_texts.append(text)
        findings = self._guardrails._find(whole, self._action)  # both classes are parts of the same fake
        new = tuple(findings[self._known.get(choice, 0) :])
        self._known[choice] = len(findings)
        blocked = bool(new) and self._action is Action.BLOCK
        cleared = len(whole) - (0 if last else self._guardrails.held(whole))
        self._put(Clearance(choice, 0 if blocked else cleared, new, blocked, fully_judged=last and not blocked))
        return ()

    async def end(self) -> None:
        self._put(None)

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        while True:
            while not self._out:
                self._ready.clear()
                await self._ready.wait()
            clearance = self._out.popleft()
            if clearance is None:
                return
            yield clearance

    def _put(self, clearance: Clearance | None) -> None:
        self._out.append(clearance)
        self._ready.set()


def _action(detectors: Sequence[Detector]) -> Action:
    for detector in detectors:
        if detector.detector_id != "words":
            raise NotFound(f"detector `{detector.detector_id}` not found", resource=detector.detector_id)
    return max(detector.action for detector in detectors)


@dataclass(slots=True)
class FakeIngest:
    """Records uploads and changes of access. Their jobs remain queued.

    Attributes:
        failure: An error that each submission raises, or None.
    """

    uploads: list[Upload] = field(default_factory=list)
    changes: list[AccessChange] = field(default_factory=list)
    jobs: dict[tuple[str, str], Job] = field(default_factory=dict)
    failure: CausewayError | None = None

    async def submit(self, principal: Principal, upload: Upload, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`."""
        keys.index_name(upload.index)
        if self.failure is not None:
            raise self.failure
        self.uploads.append(upload)
        return self._queued(principal, upload.index, keys.document_id(upload.sourcefile), upload.sourcefile)

    async def change_access(self, principal: Principal, change: AccessChange, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`."""
        if self.failure is not None:
            raise self.failure
        self.changes.append(change)
        return self._queued(principal, change.index, change.document_id, change.sourcefile)

    def _queued(self, principal: Principal, index: str, document_id: str, sourcefile: str) -> Job:
        job = Job(
            id=uuid.uuid4().hex,
            state="queued",
            index=index,
            document_id=document_id,
            sourcefile=sourcefile,
            created_at="2026-01-01T00:00:00Z",
            updated_at="2026-01-01T00:00:00Z",
            trace_id="",
        )
        self.jobs[principal.tenant, job.id] = job
        return job

    async def job(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """See `ports.documents.Ingest`."""
        try:
            return self.jobs[principal.tenant, job_id]
        except KeyError:
            raise NotFound(f"No such job: {job_id!r}.", resource=job_id) from None


@dataclass(slots=True)
class FakeProbe:
    """A probe that reports a given problem, or None."""

    name: str
    problem: str | None = None

    async def check(self, deadline: Deadline) -> str | None:
        """See `ports.health.Probe`."""
        return self.problem

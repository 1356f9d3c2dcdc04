"""Search for passages and read documents without a model. Detectors judge the texts as they judge an answer.

The context detectors judge the texts because an agent passes them to a model. The output detectors judge the texts
because clients outside the platform read them.
"""

from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import Blocked

from gateway.answering.checks import Checks
from gateway.answering.concurrency import background_task, run_both
from gateway.answering.json_texts import replaced
from gateway.answering.timeline import Timeline
from gateway.domain import Action, Direction, Finding, Passage, Turn
from gateway.domain.documents import ReadDocument, TextRange
from gateway.ports.answering import Guardrails, Retriever
from gateway.ports.documents import Catalogue

MARGIN = 512
"""Detectors also judge this many code points before and after a part, to find text that crosses its edges."""

_JUDGED = (Direction.CONTEXT, Direction.OUTPUT)


class DocumentReader:
    """Searches for passages and reads documents.

    Args:
        retriever: Finds passages.
        catalogue: Reads documents.
        guardrails: Judges texts.
    """

    def __init__(self, retriever: Retriever, catalogue: Catalogue, guardrails: Guardrails) -> None:
        self._retriever = retriever
        self._catalogue = catalogue
        self._checks = Checks(guardrails)

    async def search(self, turn: Turn, top: int, timeline: Timeline, deadline: Deadline) -> tuple[Passage, ...]:
        """Return the best passages for the turn's question, after redaction and without passages that are blocked.

        Raises:
            Blocked: A detector blocks the question.
            NotFound: An index does not exist for the principal.
        """
        async with background_task(self._checks.report_on_input(turn, timeline, deadline)) as reports:
            (checked, _), passages = await run_both(
                self._checks.check_input(turn, timeline, deadline), self._find(turn, top, timeline, deadline)
            )
            if checked.question != turn.question:
                passages = await self._find(checked, top, timeline, deadline)
            await reports
        for direction in _JUDGED:
            passages, _ = await self._checks.check_passages(checked, direction, passages, timeline, deadline)
        return passages

    async def _find(self, turn: Turn, top: int, timeline: Timeline, deadline: Deadline) -> tuple[Passage, ...]:
        with timeline.step("retrieve"):
            found = await self._retriever.retrieve(turn.principal, turn.retrieval, turn.question, top, deadline)
            timeline.add_inner_steps("retrieve", found.steps)
        return found.passages

    async def read(
        self, turn: Turn, index: str, document_id: str, part: TextRange, timeline: Timeline, deadline: Deadline
    ) -> ReadDocument:
        """Return a document with a part of its text, after the detectors have judged and redacted the part.

        Raises:
            Blocked: A detector blocks the part or the text around it, or the gateway cannot redact the part.
            NotFound: The index or the document does not exist, or the principal may not see it.
        """
        protected = turn.detectors.context or turn.detectors.output
        before = min(part.offset, MARGIN) if protected else 0
        after = MARGIN if protected else 0
        extended = replace(part, offset=part.offset - before, length=before + part.length + after)
        with timeline.step("read document"):
            document = await self._catalogue.read(turn.principal, index, document_id, extended, deadline)
        end = before + part.length
        is_truncated = document.is_truncated or len(document.text) > end
        text = await self._cleared(turn, document.text, before, min(end, len(document.text)), timeline, deadline)
        return replace(document, text=text, is_truncated=is_truncated)

    async def _cleared(
        self, turn: Turn, text: str, start: int, end: int, timeline: Timeline, deadline: Deadline
    ) -> str:
        """Return the text from ``start`` to ``end`` after redaction of the whole text.

        Raises:
            Blocked: A detector blocks the text, or the gateway cannot redact the text.
        """
        findings: list[Finding] = []
        for direction in _JUDGED:
            verdicts, _ = await self._checks.judge(turn, direction, [text], timeline, deadline)
            for verdict in verdicts:
                if verdict.action is Action.BLOCK:
                    raise Blocked("The document was stopped by the guardrails.")
                findings += [finding for finding in verdict.findings if finding.action is Action.REDACT]
        return _redacted(text, findings, start, end)


def _redacted(text: str, findings: list[Finding], start: int, end: int) -> str:
    """Return a part of a text with the spans of the findings replaced.

    Raises:
        Blocked: A finding has no span, so the gateway cannot redact the text.
    """
    spans = []
    for finding in findings:
        if finding.start is None or finding.end is None:
            raise Blocked("The document was stopped by the guardrails.")
        if finding.end > start and finding.start < end:
            spans.append((max(finding.start, start) - start, min(finding.end, end) - start, finding.replacement))
    return replaced(text[start:end], spans)

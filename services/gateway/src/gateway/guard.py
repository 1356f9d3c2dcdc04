"""Holds a model's text back until the detectors have cleared it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace

from gateway.domain import Action, Batch, Delta, Detections, Direction, Event, Finding, Finish, Start
from gateway.ports import Clearance, Watch

HELD_CHARACTERS = 64 * 1024
"""Text that may wait for the detectors; beyond it the model's stream is not read."""


@dataclass(slots=True)
class Choice:
    """What is held back of one choice.

    Attributes:
        pending: Events that wait, in order; text among them begins at ``offset``.
        offset: Code points of the choice that were released or redacted.
        redactions: Findings to replace that were not passed yet, by start.
    """

    index: int
    pending: deque[Delta | Finish] = field(default_factory=deque)
    offset: int = 0
    redactions: deque[Finding] = field(default_factory=deque)
    finished: bool = False

    def release(self, cleared_until: int, *, judged: bool) -> list[Event]:
        """Takes out what may go: text up to ``cleared_until``, the finish only once the choice is ``judged``."""
        out: list[Event] = []
        while self.pending:
            event = self.pending[0]
            if isinstance(event, Finish):
                if not judged:
                    break
                out.append(event)
                self.finished = True
            else:
                room = cleared_until - self.offset
                if event.text and room <= 0:
                    break
                if len(event.text) > room:
                    # What stands beside the text goes with its last piece.
                    head, tail = Delta(event.choice, event.text[:room]), replace(event, text=event.text[room:])
                    self.pending[0] = tail
                    self._pass(head, out)
                    break
                self._pass(event, out)
            self.pending.popleft()
        return out

    def _pass(self, delta: Delta, out: list[Event]) -> None:
        text = self._redacted(delta.text)
        if text or delta.raw_json or not delta.text:
            out.append(replace(delta, text=text) if text != delta.text else delta)

    def _redacted(self, text: str) -> str:
        """The text with the findings replaced; a span that began in an earlier piece was replaced there."""
        begin, end = self.offset, self.offset + len(text)
        self.offset = end
        pieces, at = [], begin
        while self.redactions:
            finding = self.redactions[0]
            assert finding.start is not None
            assert finding.end is not None
            if finding.start >= end:
                break
            if finding.start >= at:
                pieces += [text[at - begin : finding.start - begin], finding.replacement]
            at = max(at, min(finding.end, end))
            if finding.end > end:
                break
            self.redactions.popleft()
        pieces.append(text[at - begin :])
        return "".join(pieces)


class OutputGuard:
    """One answer on its way through its detectors.

    Two tasks run beside the reader: one feeds the detectors with what the model sends, one takes their clearances;
    `events` hands on what both leave behind.
    """

    def __init__(self, batches: AsyncIterator[Batch], watch: Watch, blocked_message: str) -> None:
        self._batches = batches
        self._watch = watch
        self._blocked_message = blocked_message
        self._choices: dict[int, Choice] = {}
        self._ready: list[Event] = []
        self._tail: list[Event] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._held = 0
        self._blocked = False

    async def events(self) -> AsyncGenerator[Batch, None]:
        """The model's events, in batches: cleared, redacted, or ended by a block."""
        tasks = (asyncio.create_task(self._feed()), asyncio.create_task(self._clear()))
        feeding, clearing = tasks
        for task in tasks:
            task.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._ready:
                    batch, self._ready = self._ready, []
                    yield batch
                for task in tasks:
                    if task.done():
                        task.result()
                if self._blocked:
                    yield self._blocked_end()
                    return
                if clearing.done() and feeding.done() and not self._ready:
                    yield self._end()
                    return
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _feed(self) -> None:
        async for batch in self._batches:
            texts: dict[int, list[str]] = {}
            finished: list[int] = []
            for event in batch:
                if isinstance(event, Delta | Finish):
                    choice = self._choices.setdefault(event.choice, Choice(event.choice))
                    choice.pending.append(event)
                    if isinstance(event, Finish):
                        finished.append(event.choice)
                    elif event.text:
                        texts.setdefault(event.choice, []).append(event.text)
                elif isinstance(event, Start):
                    self._ready.append(event)
                else:
                    self._tail.append(event)
            self._wake.set()
            for index in texts.keys() | set(finished):
                text = "".join(texts.get(index, ()))
                self._held += len(text)
                await self._watch.feed(index, text, last=index in finished)
            while self._held > HELD_CHARACTERS:
                self._room.clear()
                await self._room.wait()
        await self._watch.end()

    async def _clear(self) -> None:
        async for clearance in self._watch.clearances():
            self._apply(clearance)
            self._wake.set()

    def _apply(self, clearance: Clearance) -> None:
        choice = self._choices.setdefault(clearance.choice, Choice(clearance.choice))
        if clearance.findings or clearance.failures:
            self._ready.append(Detections(Direction.OUTPUT, choice.index, clearance.findings, clearance.failures))
        if clearance.blocked:
            self._blocked = True
            return
        spans = [f for f in clearance.findings if f.action is Action.REDACT and f.start is not None]
        choice.redactions.extend(sorted(spans, key=lambda finding: finding.start or 0))
        before = choice.offset
        self._ready += choice.release(clearance.cleared_until, judged=False)
        self._held -= choice.offset - before
        self._room.set()

    def _end(self) -> list[Event]:
        out: list[Event] = []
        for choice in self._choices.values():
            out += choice.release(choice.offset, judged=True)
        return out + self._tail

    def _blocked_end(self) -> list[Event]:
        out: list[Event] = []
        for choice in self._choices.values():
            if not choice.finished:
                out.append(Delta(choice.index, self._blocked_message))
                out.append(Finish(choice.index, "content_filter"))
        return out + self._tail

"""Holds a model's text back until the detectors have cleared it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec
from servicekit.errors import Unavailable

from gateway.domain import Action, Batch, Delta, Detections, Direction, Event, Finding, Finish, Start, Usage
from gateway.ports import Clearance, Watch

HELD_CHARACTERS = 64 * 1024
"""What of each choice may wait, for the detectors and for the reader; beyond it the model's stream is not read."""

LONGEST_PIECE = 16 * 1024
"""Characters that the detectors get at once, however much a model says at once."""


class Choice:
    """What is held back of one choice.

    Attributes:
        index: Which choice.
        cleared: Code points of its text that may be released.
        fed: Whether it has text at all.
        told: Whether the detectors know that it is complete.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.cleared = 0
        self.fed = False
        self.told = False
        self._pending: deque[Delta | Finish] = deque()
        self._redactions: deque[Finding] = deque()
        self._offset = 0

    @property
    def empty(self) -> bool:
        """Nothing is held back."""
        return not self._pending

    def hold(self, event: Delta | Finish) -> None:
        """Takes an event in; it leaves after those before it."""
        self._pending.append(event)

    def redact(self, findings: tuple[Finding, ...]) -> None:
        """Notes spans to replace on their way out."""
        spans = [f for f in findings if f.action is Action.REDACT and f.start is not None]
        if spans:
            spans += self._redactions
            self._redactions = deque(sorted(spans, key=lambda finding: finding.start or 0))

    def release(self, out: list[Event], *, judged: bool = False) -> int:
        """Moves to ``out`` what may go: text that is cleared, what stands beside it, the finish once all is judged.

        Returns:
            The size of what was taken out, as `size_of` counts it.
        """
        size = 0
        while self._pending:
            event = self._pending[0]
            if isinstance(event, Finish):
                if not judged:
                    break
                out.append(event)
            elif len(event.text) <= (room := self.cleared - self._offset) or not event.text:
                self._pass(event, out)
            else:
                if room > 0:
                    # What stands beside the text goes with its last piece.
                    size += room
                    self._pass(Delta(event.choice, event.text[:room]), out)
                    self._pending[0] = msgspec.structs.replace(event, text=event.text[room:])
                break
            size += size_of(event)
            self._pending.popleft()
        return size

    def _pass(self, delta: Delta, out: list[Event]) -> None:
        text = self._redacted(delta.text) if self._redactions else delta.text
        self._offset += len(delta.text)
        if text is delta.text:
            out.append(delta)
        elif text or delta.delta_json or delta.choice_json:
            out.append(msgspec.structs.replace(delta, text=text))

    def _redacted(self, text: str) -> str:
        """The text, which begins at the offset, with the findings replaced.

        A span that began in an earlier piece was replaced there; only its rest is cut off here.
        """
        begin, end = self._offset, self._offset + len(text)
        pieces, at = [], begin
        while self._redactions:
            finding = self._redactions[0]
            assert finding.start is not None
            assert finding.end is not None
            if finding.start >= end:
                break
            if finding.start >= at:
                pieces += [text[at - begin : finding.start - begin], finding.replacement]
            at = max(at, min(finding.end, end))
            if finding.end > end:
                break
            self._redactions.popleft()
        pieces.append(text[at - begin :])
        return "".join(pieces)


class OutputGuard:
    """One answer on its way through its detectors.

    Two tasks run beside the reader: one feeds the detectors with what the model sends, one takes their clearances;
    `events` hands on what both leave behind. The model's stream is read no further than `HELD_CHARACTERS` ahead of
    the reader.

    Args:
        batches: What the model sends.
        watch: The detectors.
        blocked_message: Stands for what they stop.
    """

    def __init__(self, batches: AsyncIterator[Batch], watch: Watch, blocked_message: str) -> None:
        self._batches = batches
        self._watch = watch
        self._blocked_message = blocked_message
        self._choices: dict[int, Choice] = {}
        self._starts: list[Event] = []
        self._ready: list[Event] = []
        self._ready_size = 0
        self._held = 0
        self._usage: Usage | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._fed = False
        self._blocked = False

    async def events(self) -> AsyncGenerator[Batch, None]:
        """The model's events, in batches: cleared, redacted, or ended by a block.

        Raises:
            CausewayError: The model or the detectors failed; what was cleared until then came before.
        """
        tasks = (asyncio.create_task(self._feed()), asyncio.create_task(self._clear()))
        for task in tasks:
            task.add_done_callback(lambda _: self._wake.set())
        try:
            while not self._over(*tasks):
                await self._wake.wait()
                self._wake.clear()
                while self._ready:
                    batch, size = self._started(self._ready), self._ready_size
                    self._ready, self._ready_size = [], 0
                    yield batch
                    self._held -= size
                    self._room.set()
            ending = self._started(self._blocked_end() if self._blocked else self._end())
            if ending:
                yield ending
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                # Looked at, so that asyncio does not report a failure that came too late as forgotten.
                with contextlib.suppress(asyncio.CancelledError):
                    task.exception()

    def _over(self, feeding: "asyncio.Task[None]", clearing: "asyncio.Task[None]") -> bool:
        """Whether nothing more comes. What the detectors said holds, whatever becomes of the model's stream."""
        if self._blocked:
            return True
        for task in (clearing, feeding):
            if task.done():
                task.result()
        if clearing.done() and not self._fed:
            raise _unjudged()
        return clearing.done() and feeding.done()

    async def _feed(self) -> None:
        async for batch in self._batches:
            texts = self._take(batch)
            for choice, pieces in texts.items():
                text = "".join(pieces)
                while len(text) > LONGEST_PIECE:
                    await self._watch.feed(choice.index, text[:LONGEST_PIECE])
                    text = text[LONGEST_PIECE:]
                # Complete for the detectors, too, with its finish: what they hold back of it need not wait longer.
                await self._watch.feed(choice.index, text, last=choice.told)
            while self._held > HELD_CHARACTERS * len(self._choices):
                self._room.clear()
                await self._room.wait()
        for choice in self._choices.values():
            if choice.fed and not choice.told:
                await self._watch.feed(choice.index, "", last=True)
        self._fed = True
        await self._watch.end()

    def _take(self, batch: Batch) -> dict[Choice, list[str]]:
        """Takes a batch in; returns what the detectors must see of it."""
        texts: dict[Choice, list[str]] = {}
        for event in batch:
            if isinstance(event, Delta):
                choice = self._choice(event.choice)
                choice.hold(event)
                self._held += size_of(event)
                if event.text:
                    choice.fed = True
                    texts.setdefault(choice, []).append(event.text)
                else:
                    self._release(choice)
            elif isinstance(event, Finish):
                choice = self._choice(event.choice)
                choice.hold(event)
                if choice.fed:
                    choice.told = True
                    texts.setdefault(choice, [])
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Start):
                # Waits for something to be said: a request that the detectors refuse is answered by a status.
                self._starts.append(event)
        return texts

    async def _clear(self) -> None:
        async for clearance in self._watch.clearances():
            self._apply(clearance)
            self._wake.set()

    def _apply(self, clearance: Clearance) -> None:
        choice = self._choice(clearance.choice)
        if clearance.findings or clearance.failures:
            self._ready.append(Detections(Direction.OUTPUT, choice.index, clearance.findings, clearance.failures))
        if clearance.blocked:
            self._blocked = True
            return
        choice.redact(clearance.findings)
        choice.cleared = max(choice.cleared, clearance.cleared_until)
        self._release(choice)

    def _choice(self, index: int) -> Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index)
        return choice

    def _release(self, choice: Choice) -> None:
        if self._blocked:
            # Before the reader has seen the block, its tasks may still have gone on.
            return
        before = len(self._ready)
        self._ready_size += choice.release(self._ready)
        if len(self._ready) > before:
            self._wake.set()

    def _started(self, events: list[Event]) -> list[Event]:
        if not self._starts:
            return events
        starts, self._starts = self._starts, []
        return starts + events

    def _end(self) -> list[Event]:
        out: list[Event] = []
        for choice in self._choices.values():
            choice.release(out, judged=True)
            if not choice.empty:
                raise _unjudged()
        return self._with_usage(out)

    def _blocked_end(self) -> list[Event]:
        out: list[Event] = []
        for index in self._choices:
            out += [Delta(index, self._blocked_message), Finish(index, "content_filter")]
        return self._with_usage(out)

    def _with_usage(self, out: list[Event]) -> list[Event]:
        return out if self._usage is None else [*out, self._usage]


def size_of(event: Delta | Finish) -> int:
    """What an event counts towards `HELD_CHARACTERS`."""
    if isinstance(event, Finish):
        return 0
    return len(event.text) + len(event.delta_json) + len(event.choice_json)


def _unjudged() -> Unavailable:
    return Unavailable("The guardrails ended before they had judged the whole answer.", retry_after=1)

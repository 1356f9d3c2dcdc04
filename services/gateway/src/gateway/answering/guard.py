"""Holds a model's text back until the detectors have cleared it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from servicekit.errors import Unavailable
from servicekit.tasks import ended

from gateway.answering.beside_texts import FIRST, BesideTexts
from gateway.answering.hold_back import HeldChoice
from gateway.answering.whole_answer import WholeAnswer
from gateway.domain import (
    Batch,
    Completion,
    Delta,
    Detections,
    Direction,
    Event,
    Finish,
    FollowUps,
    Start,
    Usage,
)
from gateway.ports.answering import Clearance, Watch

HELD_CHARACTERS = 64 * 1024
"""What of each choice may wait, for the detectors and for the reader; beyond it the model's stream is not read."""

LONGEST_PIECE = 16 * 1024
"""Characters that the detectors get at once, however much a model says at once."""


class OutputGuard:
    """One answer on its way through its detectors.

    Two tasks run beside the reader: one feeds the detectors with what the model sends, one takes their clearances;
    `events` hands on what both leave behind. The model's stream is read no further than `HELD_CHARACTERS` ahead of
    the reader. A choice ends when all of it is judged, and waits for no other.

    Args:
        batches: What the model sends; closed at the end.
        watch: The detectors.
        blocked_message: Stands for what they stop.
        protected: Some of them redacts or blocks; see `HeldChoice`.
        chunked: What is cleared at once comes out as one event a choice, behind what was found in it.
        names: As of `HeldChoice`.
    """

    def __init__(
        self,
        batches: AsyncGenerator[Batch, None],
        watch: Watch,
        blocked_message: str,
        *,
        protected: bool = True,
        chunked: bool = False,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._batches = batches
        self._watch = watch
        self._blocked_message = blocked_message
        self._protected = protected
        self._chunked = chunked
        self._names = names
        self._choices: dict[int, HeldChoice] = {}
        self._beside = BesideTexts(protected=protected)
        self._whole: WholeAnswer | None = None
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
        finally:
            # Before the last words are written, which may take as long as the reader likes.
            await _stopped(*tasks)
        if ending:
            yield ending

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
        async with contextlib.aclosing(self._batches) as batches:
            async for batch in batches:
                for choice, pieces in self._take(batch).items():
                    await self._judge(choice, "".join(pieces))
                if self._beside.pieces:
                    await self._judge_beside()
                while self._held > HELD_CHARACTERS * len(self._choices):
                    self._room.clear()
                    await self._room.wait()
        for choice in self._choices.values():
            if not (choice.told or choice.judged):  # it has no finish
                self._complete(choice)
                choice.told = True
                if choice.fed:
                    await self._judge(choice, "")
        self._beside.end()
        await self._judge_beside()
        self._fed = True
        await self._watch.end()

    async def _judge(self, choice: HeldChoice, text: str) -> None:
        while len(text) > LONGEST_PIECE:
            await self._watch.feed(choice.index, text[:LONGEST_PIECE])
            text = text[LONGEST_PIECE:]
        # Complete for the detectors, too, with its finish: what they hold back of it need not wait longer.
        reply = choice.reply_json if choice.told else b""
        await self._watch.feed(choice.index, text, last=choice.told, reply_json=reply)

    async def _judge_beside(self) -> None:
        for piece in self._beside.taken():
            text = piece.text
            while len(text) > LONGEST_PIECE:
                await self._watch.feed(piece.number, text[:LONGEST_PIECE], beside=piece.beside)
                text = text[LONGEST_PIECE:]
            await self._watch.feed(
                piece.number, text, last=piece.last, reply_json=piece.reply_json, beside=piece.beside
            )

    def _take(self, batch: Batch) -> dict[HeldChoice, list[str]]:
        """Takes a batch in; returns what the detectors must see of it."""
        texts: dict[HeldChoice, list[str]] = {}
        for event in batch:
            if isinstance(event, Delta):
                choice = self._choice(event.choice)
                before = choice.size
                choice.hold(event)
                self._held += choice.size - before
                if event.text:
                    texts.setdefault(choice, []).append(event.text)
                if event.delta_json and choice.beside is not None:
                    self._held += self._beside.grow(choice.beside)
                if not event.text:
                    if choice.overlong:
                        raise Unavailable("The model calls tools with more than can be judged.")
                    self._release(choice)
            elif isinstance(event, Finish):
                choice = self._choice(event.choice)
                choice.hold(event)
                self._complete(choice)
                if choice.fed:
                    choice.told = True
                    texts.setdefault(choice, [])
                else:
                    choice.judged = True
                    self._release(choice)
            elif isinstance(event, Usage):
                self._usage = self._beside.usage(event)
            elif isinstance(event, Start):
                # Waits for something to be said: a request that the detectors refuse is answered by a status.
                self._starts.append(self._beside.start(event))
            elif isinstance(event, FollowUps):
                self._beside.follow_ups(event)
                self._choice(0).asks = True
            elif isinstance(event, Completion):
                self._whole = WholeAnswer(
                    event.raw_json, self._beside, protected=self._protected, names=self._names
                )
                self._beside.pieces += self._whole.feeds()
        return texts

    def _complete(self, choice: HeldChoice) -> None:
        """What is beside a choice is judged once the choice is complete."""
        if choice.beside is not None:
            self._beside.complete(choice.beside, choice.complete())

    async def _clear(self) -> None:
        async for clearance in self._watch.clearances():
            self._apply(clearance)
            self._wake.set()

    def _apply(self, clearance: Clearance) -> None:
        if self._whole is not None or clearance.choice >= FIRST:
            self._apply_beside(clearance)
            return
        choice = self._choice(clearance.choice)
        choice.find(clearance.findings)
        findings = choice.found(now=clearance.blocked)
        if findings or clearance.failures:
            self._ready.append(Detections(Direction.OUTPUT, choice.index, findings, clearance.failures))
        if clearance.blocked:
            self._blocked = True
            return
        choice.cleared = max(choice.cleared, clearance.cleared_until)
        choice.judged = choice.judged or clearance.judged
        self._release(choice)

    def _apply_beside(self, clearance: Clearance) -> None:
        if self._whole is not None and self._whole.takes(clearance.choice):
            self._ready += self._whole.take(clearance)
        else:
            size = self._beside.size
            self._ready += self._beside.take(clearance)
            self._ready_size += size - self._beside.size
        if clearance.blocked:
            self._blocked = True
            return
        self._starts += self._beside.started()
        if self._beside.answered:
            self._choice(0).asks = False
        for choice in self._choices.values():
            self._release(choice)

    def _choice(self, index: int) -> HeldChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = HeldChoice(index, protected=self._protected, chunked=self._chunked, names=self._names)
            self._choices[index] = choice
        return choice

    def _release(self, choice: HeldChoice) -> None:
        if self._blocked:
            # Before the reader has seen the block, its tasks may still have gone on.
            return
        if found := choice.found():
            self._ready.append(Detections(Direction.OUTPUT, choice.index, found))
        events, size = len(self._ready), choice.size
        choice.release(self._ready)
        self._ready_size += size - choice.size
        if len(self._ready) > events:
            if self._chunked and self._usage is not None:
                # As far as the model has told it by now: some tell it with every token.
                self._ready.insert(events, self._usage)
            self._wake.set()

    def _started(self, events: list[Event]) -> list[Event]:
        if not self._starts:
            return events
        starts, self._starts = self._starts, []
        return starts + events

    def _end(self) -> list[Event]:
        out: list[Event] = []
        if self._whole is not None:
            if not (self._whole.judged and self._beside.judged):
                raise _unjudged()
            return [*self._beside.last(), Completion(self._whole.json())]
        if not self._beside.judged:
            raise _unjudged()
        for choice in self._choices.values():
            choice.judged = True
            if found := choice.found(now=True):
                out.append(Detections(Direction.OUTPUT, choice.index, found))
            choice.release(out)
            if not choice.empty:
                raise _unjudged()
        return self._with_usage([*out, *self._beside.last()])

    def _blocked_end(self) -> list[Event]:
        out: list[Event] = []
        if self._whole is not None:
            self._usage = self._whole.usage
        unfinished = {index for index, choice in self._choices.items() if not choice.finished}
        for index in sorted(unfinished | (self._whole.choices.keys() if self._whole is not None else set())):
            out += [Delta(index, self._blocked_message), Finish(index, "content_filter")]
        return self._with_usage(out)

    def _with_usage(self, out: list[Event]) -> list[Event]:
        usage = self._beside.cleared_usage(self._usage)
        return out if usage is None else [*out, usage]


async def _stopped(*tasks: "asyncio.Task[None]") -> None:
    await ended(*tasks)
    for task in tasks:
        # Looked at, so that asyncio does not report a failure that came too late as forgotten.
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()


def _unjudged() -> Unavailable:
    return Unavailable("The guardrails ended before they had judged the whole answer.", retry_after=1)

"""Hold a model's text back until the detectors clear it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from servicekit.errors import Unavailable
from servicekit.tasks import discard

from gateway.answering.choice_members import CALLS_TOO_LONG
from gateway.answering.hold_back import HeldChoice
from gateway.answering.other_texts import FIRST, OtherTexts
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

MAX_HELD_CHARACTERS = 64 * 1024
"""The maximum number of held characters of a choice. At this limit the guard stops reading from the model."""

MAX_PIECE_LENGTH = 16 * 1024
"""The maximum number of characters in one call to the detectors."""


class OutputGuard:
    """Yields the events of one answer after its detectors have judged them.

    Two tasks run concurrently with the consumer of `events`. The first task feeds the model's events to the
    detectors and records the immediate clearances. The second task records the later clearances. The guard reads
    the model's stream at most `MAX_HELD_CHARACTERS` per choice ahead of the consumer. A choice ends after the
    detectors have judged its last text. It does not wait for other choices.

    Args:
        batches: The model's events. The guard closes the generator at the end.
        watch: The detectors.
        blocked_message: The text that replaces a blocked answer.
        protected: Whether a detector redacts or blocks; see `HeldChoice`.
        chunked: Send the text of one clearance as one event per choice, after its findings.
        names: The names of the passages, as in `HeldChoice`.
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
        self._other_texts = OtherTexts(protected=protected)
        self._whole: WholeAnswer | None = None
        self._starts: list[Event] = []
        self._ready: list[Event] = []
        self._ready_size = 0
        self._held = 0
        self._usage: Usage | None = None
        self._wake = asyncio.Event()
        self._space_freed = asyncio.Event()
        self._all_fed = False
        self._blocked = False

    async def events(self) -> AsyncGenerator[Batch, None]:
        """Yield the model's events in batches: cleared, redacted, or ended by a block.

        Raises:
            CausewayError: The model or the detectors failed. All earlier cleared text has been yielded.
        """
        tasks = (asyncio.create_task(self._feed()), asyncio.create_task(self._clear()))
        for task in tasks:
            task.add_done_callback(lambda _: self._wake.set())
        try:
            while not self._has_ended(*tasks):
                await self._wake.wait()
                self._wake.clear()
                while self._ready:
                    batch, size = self._with_starts(self._ready), self._ready_size
                    self._ready, self._ready_size = [], 0
                    yield batch
                    self._held -= size
                    self._space_freed.set()
            ending = self._with_starts(self._blocked_end() if self._blocked else self._end())
        finally:
            # Stop the tasks before the last batch, because a slow client may receive this batch much later.
            await discard(*tasks)
        if ending:
            yield ending

    def _has_ended(self, feeding: "asyncio.Task[None]", clearing: "asyncio.Task[None]") -> bool:
        """Return whether the answer has ended. A block ends it, even if the model's stream fails later."""
        if self._blocked:
            return True
        for task in (clearing, feeding):
            if task.done():
                task.result()
        if clearing.done() and not self._all_fed:
            raise _incomplete()
        return clearing.done() and feeding.done()

    async def _feed(self) -> None:
        async with contextlib.aclosing(self._batches) as batches:
            async for batch in batches:
                for choice, pieces in self._take(batch).items():
                    await self._judge(choice, "".join(pieces))
                if self._other_texts.pieces:
                    await self._judge_other_texts()
                while self._held > MAX_HELD_CHARACTERS * len(self._choices):
                    self._space_freed.clear()
                    await self._space_freed.wait()
        for choice in self._choices.values():
            if not (choice.end_fed or choice.fully_judged):  # the model sent no finish for it
                self._complete(choice)
                choice.end_fed = True
                if choice.fed:
                    await self._judge(choice, "")
        self._other_texts.end()
        await self._judge_other_texts()
        self._all_fed = True
        await self._watch.end()

    async def _judge(self, choice: HeldChoice, text: str) -> None:
        while len(text) > MAX_PIECE_LENGTH:
            self._record(await self._watch.feed(choice.index, text[:MAX_PIECE_LENGTH]))
            text = text[MAX_PIECE_LENGTH:]
        # After the finish, the detectors must not wait for more text.
        reply = choice.reply_json if choice.end_fed else b""
        self._record(await self._watch.feed(choice.index, text, last=choice.end_fed, reply_json=reply))

    async def _judge_other_texts(self) -> None:
        for piece in self._other_texts.take_pieces():
            text = piece.text
            while len(text) > MAX_PIECE_LENGTH:
                self._record(
                    await self._watch.feed(piece.number, text[:MAX_PIECE_LENGTH], auxiliary=piece.auxiliary)
                )
                text = text[MAX_PIECE_LENGTH:]
            self._record(
                await self._watch.feed(
                    piece.number, text, last=piece.last, reply_json=piece.reply_json, auxiliary=piece.auxiliary
                )
            )

    def _take(self, batch: Batch) -> dict[HeldChoice, list[str]]:
        """Hold the events of a batch and return the texts that the detectors must judge."""
        texts: dict[HeldChoice, list[str]] = {}
        for event in batch:
            if isinstance(event, Delta):
                choice = self._choice(event.choice)
                before = choice.size
                choice.hold(event)
                self._held += choice.size - before
                if event.text:
                    texts.setdefault(choice, []).append(event.text)
                if event.delta_json and choice.members is not None:
                    self._held += self._other_texts.add_growing(choice.members)
                if not event.text:
                    if choice.overlong:
                        raise Unavailable(CALLS_TOO_LONG)
                    self._release(choice)
            elif isinstance(event, Finish):
                choice = self._choice(event.choice)
                choice.hold(event)
                self._complete(choice)
                if choice.fed:
                    choice.end_fed = True
                    texts.setdefault(choice, [])
                else:
                    choice.fully_judged = True
                    self._release(choice)
            elif isinstance(event, Usage):
                self._usage = self._other_texts.add_usage(event)
            elif isinstance(event, Start):
                # The start waits for the first text, so that a refusal by the detectors can be an HTTP status.
                self._starts.append(self._other_texts.add_start(event))
            elif isinstance(event, FollowUps):
                self._other_texts.add_follow_ups(event)
                self._choice(0).follow_ups_pending = True
            elif isinstance(event, Completion):
                self._whole = WholeAnswer(
                    event.raw_json, self._other_texts, protected=self._protected, names=self._names
                )
                self._other_texts.pieces += self._whole.pieces()
        return texts

    def _complete(self, choice: HeldChoice) -> None:
        """Submit the members of a complete choice other than its text to the detectors."""
        if choice.members is not None:
            self._other_texts.add_complete(choice.members, choice.complete())

    async def _clear(self) -> None:
        async for clearance in self._watch.clearances():
            self._record((clearance,))

    def _record(self, clearances: Sequence[Clearance]) -> None:
        for clearance in clearances:
            self._apply(clearance)
            self._wake.set()

    def _apply(self, clearance: Clearance) -> None:
        if self._whole is not None or clearance.choice >= FIRST:
            self._apply_to_other_text(clearance)
            return
        choice = self._choice(clearance.choice)
        choice.add_findings(clearance.findings)
        findings = choice.take_findings(now=clearance.blocked)
        if findings or clearance.failures:
            self._ready.append(Detections(Direction.OUTPUT, choice.index, findings, clearance.failures))
        if clearance.blocked:
            self._blocked = True
            return
        choice.cleared = max(choice.cleared, clearance.cleared_until)
        choice.fully_judged = choice.fully_judged or clearance.fully_judged
        self._release(choice)

    def _apply_to_other_text(self, clearance: Clearance) -> None:
        if self._whole is not None and self._whole.has_text(clearance.choice):
            self._ready += self._whole.take(clearance)
        else:
            size = self._other_texts.size
            self._ready += self._other_texts.take(clearance)
            self._ready_size += size - self._other_texts.size
        if clearance.blocked:
            self._blocked = True
            return
        self._starts += self._other_texts.take_starts()
        if self._other_texts.follow_ups_judged:
            self._choice(0).follow_ups_pending = False
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
            # The tasks may still run until `events` stops them.
            return
        if found := choice.take_findings():
            self._ready.append(Detections(Direction.OUTPUT, choice.index, found))
        events, size = len(self._ready), choice.size
        choice.release(self._ready)
        self._ready_size += size - choice.size
        if len(self._ready) > events:
            if self._chunked and self._usage is not None:
                # Some models send the counts so far with every token.
                self._ready.insert(events, self._usage)
            self._wake.set()

    def _with_starts(self, events: list[Event]) -> list[Event]:
        if not self._starts:
            return events
        starts, self._starts = self._starts, []
        return starts + events

    def _end(self) -> list[Event]:
        out: list[Event] = []
        if self._whole is not None:
            if not (self._whole.fully_judged and self._other_texts.fully_judged):
                raise _incomplete()
            return [*self._other_texts.final_events(), Completion(self._whole.json())]
        if not self._other_texts.fully_judged:
            raise _incomplete()
        for choice in self._choices.values():
            choice.fully_judged = True
            if found := choice.take_findings(now=True):
                out.append(Detections(Direction.OUTPUT, choice.index, found))
            choice.release(out)
            if not choice.empty:
                raise _incomplete()
        return self._with_usage([*out, *self._other_texts.final_events()])

    def _blocked_end(self) -> list[Event]:
        out: list[Event] = []
        if self._whole is not None:
            self._usage = self._whole.usage
        unfinished = {index for index, choice in self._choices.items() if not choice.finished}
        for index in sorted(unfinished | (self._whole.choices.keys() if self._whole is not None else set())):
            out += [Delta(index, self._blocked_message), Finish(index, "content_filter")]
        return self._with_usage(out)

    def _with_usage(self, out: list[Event]) -> list[Event]:
        usage = self._other_texts.cleared_usage(self._usage)
        return out if usage is None else [*out, usage]


def _incomplete() -> Unavailable:
    return Unavailable(
        "The guardrails ended before they judged the whole answer. Repeat the request.", retry_after=1
    )

"""A fake watch that clears a growing text in steps, and functions that run an output guard with it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import ClassVar

from gateway.answering.guard import MAX_PIECE_LENGTH, OutputGuard
from gateway.domain import Action, Batch, Delta, Event, Finding
from gateway.ports.answering import Clearance
from servicekit.errors import CausewayError

MESSAGE = "Withheld."
"""The message of a blocked answer."""


def finding(start: int, end: int, action: Action = Action.REDACT, replacement: str = "[X]") -> Finding:
    return Finding("d", "pii", "thing", 1.0, action, start, end, "?" * (end - start), replacement)


@dataclass
class PartialWatch:
    """A watch that clears a share of the uncleared text after each piece.

    Attributes:
        spans: The findings by choice. A finding is reported when its end is cleared, and no clearance splits it.
        shares: Percentages, used in turn after each piece. The last piece is cleared completely.
        blocks_at: The choice and the code point whose arrival causes a block.
        auxiliary: Whether auxiliary texts are judged (see `Watch.feed`). Otherwise they are never cleared.
        resume: If given, the watch accepts pieces and returns no clearance until this event is set.
        at_once: Whether `feed` returns the clearances, if there is no `resume` and no `failure`. Otherwise
            `clearances` yields them.
    """

    at_once: ClassVar[bool]
    spans: dict[int, list[Finding]] = field(default_factory=dict)
    shares: Sequence[int] = (100,)
    blocks_at: tuple[int, int] | None = None
    failure: CausewayError | None = None
    resume: asyncio.Event | None = None
    texts: dict[int, str] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    cleared: dict[int, int] = field(default_factory=dict)
    replies: dict[int, bytes] = field(default_factory=dict)
    pieces: int = 0
    auxiliary: bool = True
    ended: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self._out: deque[Clearance] = deque()
        self._wake = asyncio.Event()

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        assert choice not in self.complete, "a piece for a choice that was complete"
        assert not self.ended
        assert len(text) <= MAX_PIECE_LENGTH
        whole = self.texts[choice] = self.texts.get(choice, "") + text
        if last:
            self.complete.add(choice)
        share = 100 if last else self.shares[self.pieces % len(self.shares)]
        self.pieces += 1
        before = self.cleared.get(choice, 0)
        cleared = before + (len(whole) - before) * share // 100
        for span in self.spans.get(choice, ()):
            assert span.start is not None
            assert span.end is not None
            if span.start < cleared < span.end:
                cleared = span.start
        self.cleared[choice] = max(before, cleared) if self.auxiliary or not auxiliary else 0
        self.replies[choice] = reply_json
        reported = tuple(s for s in self.spans.get(choice, ()) if before < (s.end or 0) <= self.cleared[choice])
        blocked = self.blocks_at is not None and choice == self.blocks_at[0] and len(whole) > self.blocks_at[1]
        cleared = before if blocked else self.cleared[choice]
        clearance = Clearance(choice, cleared, reported, blocked, fully_judged=last and not blocked)
        if self.at_once and self.resume is None and self.failure is None:
            return (clearance,)
        self._out.append(clearance)
        self._wake.set()
        await asyncio.sleep(0)
        return ()

    async def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        try:
            while True:
                if self.resume is not None:
                    await self.resume.wait()
                if self.failure is not None and self.pieces:
                    raise self.failure
                while self._out:
                    yield self._out.popleft()
                    await asyncio.sleep(0)
                if self.ended:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            self.closed = True


async def model(*batches: Batch | CausewayError) -> AsyncGenerator[Batch, None]:
    """Yield the batches of a model, and raise the errors among them."""
    for batch in batches:
        if isinstance(batch, CausewayError):
            raise batch
        yield batch
        await asyncio.sleep(0)


async def guarded(
    watch: PartialWatch, *batches: Batch | CausewayError, protected: bool = True, chunked: bool = False
) -> list[Event]:
    """Return the output of a guard with this watch for the batches of a model."""
    events: list[Event] = []
    guard = OutputGuard(model(*batches), watch, MESSAGE, protected=protected, chunked=chunked)
    await collect(guard, events)
    return events


async def collect(guard: OutputGuard, events: list[Event]) -> None:
    """Append the output of a guard to the events, even if the guard raises an error."""
    async with aclosing(guard.events()) as out:
        async for batch in out:
            assert batch
            events += batch


def text_of(events: Sequence[Event], choice: int = 0) -> str:
    """Return the text of a choice."""
    return "".join(event.text for event in events if isinstance(event, Delta) and event.choice == choice)

"""The growing texts of one answer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace

from servicekit.errors import InvalidRequest

from detection.chunking.chunkers import Chunking
from detection.detectors.port import Judge
from detection.domain import Action, DetectionContext, Direction, Piece, Progress
from detection.moderation.cross_choice import CrossChoice
from detection.moderation.hold_back import GrowingText, HoldLimits, Scan
from detection.moderation.rules import Rule
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.two_passes import Rescan, TwoPassText, first_pass_rules, second_pass_rules

_MAX_CHOICES = 128
_MAX_AUXILIARY = 1024

# The maximum number of code points that wait for running detectors. Above this number, the session stops reading
# the client's stream.
_MAX_WAITING = 4096


class Session:
    """Judges the growing choices of one answer. If a rule blocks one choice, all choices end.

    Most detectors judge each choice separately. Some judge all complete choices in one call; see `CrossChoice`.

    Args:
        rules: The rules.
        context: The further input of detectors.
        chunking: The chunks in which the choices are released; None: the texts may be cut anywhere.
        holding: The limits on held-back text of each choice.
        all_hold: Text also waits for rules that only report; see `GrowingText`.
        inline_limit: The maximum number of code points of one scan on the event loop; the detectors may have lower
            limits.

    Attributes:
        blocked: Whether a rule has blocked the answer. After that, `feed` must not be called.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        context: DetectionContext | None = None,
        chunking: Chunking | None = None,
        holding: HoldLimits | None = None,
        *,
        all_hold: bool = False,
        inline_limit: int | None = None,
    ) -> None:
        self._rules = rules
        self._context = context or DetectionContext()
        self._chunking = chunking
        self._holding = holding or HoldLimits()
        self._all_hold = all_hold
        quick = [rule.detector for rule in rules if not isinstance(rule.detector, Judge)]
        self._has_judges = len(quick) < len(rules)
        limits = [detector.inline_limit for detector in quick]
        self._inline_limit = min(limits if inline_limit is None else [*limits, inline_limit], default=0)
        self._has_quick_detectors = bool(quick)
        self._texts: dict[int, GrowingText | TwoPassText] = {}
        self._ready = asyncio.Event()
        output = self._context.direction is Direction.OUTPUT
        self._cross_choices = [
            CrossChoice(rule, self._context, self._holding.whole, self._ready.set)
            if isinstance(rule.detector, Judge) and rule.detector.cross_choice and output
            else None
            for rule in rules
        ]
        self._auxiliary_texts = 0
        self.blocked = False

    def run(
        self, batches: AsyncIterator[Sequence[Piece]], workers: ThreadPool
    ) -> AsyncGenerator[list[Progress], None]:
        """Yield the steps of the pieces as soon as possible, until all text is judged or a rule blocks.

        Use with ``contextlib.aclosing``, which stops the detectors immediately.

        Args:
            batches: The pieces. The session reads no piece while too much text waits for detectors.
            workers: The threads that scan long pieces.

        Raises:
            InvalidRequest: See `feed`.
        """
        return self._run_with_judges(batches, workers) if self._has_judges else self._run_quick(batches, workers)

    async def _run_quick(
        self, batches: AsyncIterator[Sequence[Piece]], workers: ThreadPool
    ) -> AsyncGenerator[list[Progress], None]:
        try:
            async for pieces in batches:
                yield await workers.run(self.fits_inline(pieces), self.feed, pieces)
                if self.blocked:
                    return
        finally:
            self.close()

    async def _run_with_judges(
        self, batches: AsyncIterator[Sequence[Piece]], workers: ThreadPool
    ) -> AsyncGenerator[list[Progress], None]:
        reading: asyncio.Task[Sequence[Piece] | None] | None = None
        ready = asyncio.create_task(self._ready.wait())
        ended = False
        try:
            while not ended or self._busy():
                if not ended and reading is None and self._waiting() <= _MAX_WAITING:
                    reading = asyncio.create_task(_next(batches))
                await asyncio.wait({ready} if reading is None else {ready, reading}, return_when="FIRST_COMPLETED")
                if ready.done():
                    self._ready.clear()
                    ready = asyncio.create_task(self._ready.wait())
                    yield await self._all_steps((text.collect() for text in tuple(self._texts.values())), workers)
                if not self.blocked and reading is not None and reading.done():
                    pieces, reading = reading.result(), None
                    ended = pieces is None
                    if ended:
                        for cross_choice in filter(None, self._cross_choices):
                            cross_choice.call_judge()
                    if pieces is not None:
                        scans = await workers.run(self.fits_inline(pieces), self.scan, pieces)
                        yield await self._all_steps(self._applied(scans), workers)
                if self.blocked:
                    return
        finally:
            ready.cancel()
            self.close()
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await reading

    def feed(self, pieces: Sequence[Piece]) -> list[Progress]:
        """Judge pieces and return the steps; one scan judges all pieces of the same choice.

        Without slow detectors, this method may run in a thread.

        Raises:
            InvalidRequest: A piece belongs to a complete choice, or there are too many choices.
        """
        return self.apply(self.scan(pieces))

    def scan(self, pieces: Sequence[Piece]) -> list[Scan]:
        """Run the quick detectors (the first half of `feed`); may run in a thread."""
        return [self._text(piece).scan(piece) for piece in _joined(pieces)]

    def apply(self, scans: Sequence[Scan]) -> list[Progress]:
        """Apply the scans (the second half of `feed`); runs on the event loop."""
        return self._steps(
            change if isinstance(change, list) else _rescanned_inline(change) for change in self._applied(scans)
        )

    def _applied(self, scans: Sequence[Scan]) -> Iterator[list[Progress] | Rescan]:
        return (self._texts[scan.piece.choice].apply(scan) for scan in scans)

    async def _all_steps(self, changes: Iterable[list[Progress] | Rescan], workers: ThreadPool) -> list[Progress]:
        """Return the steps of the changes; a long scan of a second pass runs in a thread."""
        steps: list[Progress] = []
        for change in changes:
            if not isinstance(change, list):
                change = await self._rescanned(change, workers)
            steps += self._steps([change])
            if self.blocked:
                break
        return steps

    async def _rescanned(self, rescan: Rescan, workers: ThreadPool) -> list[Progress]:
        done: Scan | None = None
        while True:
            try:
                scan, piece = next(rescan) if done is None else rescan.send(done)
            except StopIteration as end:
                steps: list[Progress] = end.value
                return steps
            done = await workers.run(self.fits_inline([piece]), scan, piece)

    def fits_inline(self, pieces: Sequence[Piece]) -> bool:
        """Return whether the event loop may scan the pieces; longer texts would block it."""
        if not self._has_quick_detectors:
            return True
        size = sum(len(piece.text) for piece in pieces)
        size += sum(text.undecided for text in self._texts.values())
        return size <= self._inline_limit

    def _steps(self, changes: Iterable[list[Progress]]) -> list[Progress]:
        steps = []
        for change in changes:
            steps += change
            if change and change[-1].action is Action.BLOCK:
                self.blocked = True
                break
        return steps

    def close(self) -> None:
        """Stop the detectors and record their work; `run` calls this method at its end.

        A thread may still judge a piece, because threads cannot be cancelled.
        """
        for text in tuple(self._texts.values()):
            text.close()

    def _busy(self) -> bool:
        return any(text.busy for text in self._texts.values())

    def _waiting(self) -> int:
        return sum(text.waiting for text in self._texts.values())

    def _text(self, piece: Piece) -> GrowingText | TwoPassText:
        text = self._texts.get(piece.choice)
        if text is None:
            text = self._texts[piece.choice] = self._new_text(piece)
        if text.complete:
            raise _complete(piece.choice)
        return text

    def _new_text(self, piece: Piece) -> GrowingText | TwoPassText:
        if piece.auxiliary:
            self._auxiliary_texts += 1
        if self._auxiliary_texts > _MAX_AUXILIARY or len(self._texts) - self._auxiliary_texts >= _MAX_CHOICES:
            raise InvalidRequest(
                f"An answer must have at most {_MAX_CHOICES} choices and {_MAX_AUXILIARY} texts with `beside`.",
                field="piece.choice",
            )
        rules = [rule for rule in self._rules if rule.judges_auxiliary] if piece.auxiliary else self._rules
        first_rules = first_pass_rules(rules)
        text = self._growing(piece, second_pass_rules(rules) if first_rules else rules)
        if not first_rules:
            return text
        first = GrowingText(piece.choice, first_rules, self._context, None, self._holding, self._ready.set)
        return TwoPassText(piece.choice, first, text)

    def _growing(self, piece: Piece, rules: Sequence[Rule]) -> GrowingText:
        if not piece.auxiliary:
            return GrowingText(
                piece.choice,
                rules,
                self._context,
                self._chunking,
                self._holding,
                self._ready.set,
                all_hold=self._all_hold,
                cross_choices=self._cross_choices,
            )
        protects = any(rule.protects for rule in rules) or not any(rule.protects for rule in self._rules)
        return GrowingText(
            piece.choice, rules, self._context, None, self._holding, self._ready.set, clears=protects
        )


def _rescanned_inline(rescan: Rescan) -> list[Progress]:
    """Run the scans of a second pass on this thread, and return the steps."""
    try:
        scan, piece = next(rescan)
        while True:
            scan, piece = rescan.send(scan(piece))
    except StopIteration as end:
        steps: list[Progress] = end.value
        return steps


async def _next(batches: AsyncIterator[Sequence[Piece]]) -> Sequence[Piece] | None:
    return await anext(batches, None)


def _joined(pieces: Sequence[Piece]) -> Sequence[Piece]:
    if len(pieces) == 1:
        return pieces
    choices: dict[int, list[Piece]] = {}
    for piece in pieces:
        choice_pieces = choices.setdefault(piece.choice, [])
        if choice_pieces and choice_pieces[-1].last:
            raise _complete(piece.choice)
        choice_pieces.append(piece)
    return [
        replace(choice_pieces[-1], text="".join(piece.text for piece in choice_pieces))
        for choice_pieces in choices.values()
    ]


def _complete(choice: int) -> InvalidRequest:
    return InvalidRequest(f"Choice {choice} is complete and does not accept another piece.", field="piece.choice")

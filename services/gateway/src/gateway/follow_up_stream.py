"""An answer without the follow-up questions that stand behind it: they become an event of their own."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from gateway.domain import Batch, Delta, Event, Finish, FollowUps
from gateway.followups import FollowUpSplitter

MOST_QUESTIONS = 3
_STOPPED = "content_filter"


async def parted(batches: AsyncGenerator[Batch, None], blocked_message: str) -> AsyncGenerator[Batch, None]:
    """The events of an answer, with `FollowUps` behind them where there are any.

    To be put behind the output detectors, which so have judged the questions, too. A stopped answer has none: not
    even those that it had until then.

    Args:
        batches: What the detectors let pass.
        blocked_message: Stands for what they have stopped; nothing is cut out of it.
    """
    parting = _Parting(blocked_message)
    async with aclosing(batches):
        async for batch in batches:
            if out := parting.of(batch):
                yield out
    if questions := parting.questions():
        yield [FollowUps(questions)]


class _Parting:
    def __init__(self, blocked_message: str) -> None:
        self._blocked_message = blocked_message
        self._splitters: dict[int, FollowUpSplitter] = {}

    def of(self, batch: Batch) -> list[Event]:
        """A batch as the client sees it."""
        out: list[Event] = []
        for at, event in enumerate(batch):
            if isinstance(event, Delta):
                if self._is_blocked_message(event, batch[at + 1 : at + 2]):
                    self._end(event.choice, out)
                    out.append(event)
                else:
                    self._part(event, out)
            elif isinstance(event, Finish):
                self._end(event.choice, out)
                if event.reason == _STOPPED:
                    self._splitter(event.choice).questions.clear()
                out.append(event)
            else:
                out.append(event)
        return out

    def questions(self) -> tuple[str, ...]:
        """Those behind the first choice, which is the only one where there are dialects for them; each once."""
        return tuple(dict.fromkeys(self._splitter(0).questions))[:MOST_QUESTIONS]

    def _part(self, delta: Delta, out: list[Event]) -> None:
        text = self._splitter(delta.choice).feed(delta.text) if delta.text else ""
        if text == delta.text:
            out.append(delta)
        elif text or delta.delta_json or delta.choice_json:
            out.append(msgspec.structs.replace(delta, text=text))

    def _end(self, choice: int, out: list[Event]) -> None:
        if text := self._splitter(choice).end():
            out.append(Delta(choice, text))

    def _is_blocked_message(self, delta: Delta, behind: Sequence[Event]) -> bool:
        return delta.text == self._blocked_message and any(
            isinstance(event, Finish) and event.choice == delta.choice and event.reason == _STOPPED
            for event in behind
        )

    def _splitter(self, choice: int) -> FollowUpSplitter:
        splitter = self._splitters.get(choice)
        if splitter is None:
            splitter = self._splitters[choice] = FollowUpSplitter()
        return splitter

"""A conversation made to fit its model's window: the oldest exchanges are left out, question and sources stay.

For the chat protocols, whose clients send everything that was ever said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from servicekit.deadline import Deadline

from gateway.answering import budget, prompts, token_bounds
from gateway.answering.context_selection import counted, lines, no_longer, prompt_too_long, too_long, within
from gateway.answering.timeline import Timeline
from gateway.domain import Message, Selection, TokenCounts, Turn
from gateway.ports.answering import Generator

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fit:
    """A turn that fits.

    Attributes:
        turn: It, with no longer history and answer than there is room for, and without wishes that its model does
            not understand.
        selection: What is left of what was found; None where nothing was searched.
        left_out: Number of messages, the oldest ones, that are left out.
        takes_pictures: Its model takes pictures.
        room: Tokens that nothing takes yet.
    """

    turn: Turn
    selection: Selection | None
    left_out: int = 0
    takes_pictures: bool = False
    room: int = 0


class ConversationWindow:
    """Makes turns fit.

    Args:
        generator: Counts tokens as the model does, and knows its window.
        node_tokens: Tokens that a passage is taken to have before it is known.
    """

    def __init__(self, generator: Generator, node_tokens: int) -> None:
        self._generator = generator
        self._node_tokens = node_tokens

    async def fit(self, turn: Turn, found: Selection | None, timeline: Timeline, deadline: Deadline) -> Fit:
        """The turn and what was found for it, as far as the window has room for them.

        Raises:
            InvalidRequest: It has none even for the question and what must stand beside it.
        """
        with timeline.step("budget"):
            removable = exchanges(turn.history)
            cut = [turn.history[at] for exchange in removable for at in exchange]
            passages = found.passages if found else ()
            texts = [*lines(passages), *(message.text for message in cut)]
            shortest = _without(turn, frozenset(at for exchange in removable for at in exchange))
            prompt = prompts.compose(shortest, ())
            counts = self._bound(turn, cut, texts, prompt) or await self._count(turn, texts, prompt, deadline)
            if too_long(counts):
                raise prompt_too_long()
            sizes = [_size(*each) for each in zip(cut, counts.texts[len(passages) :], strict=True)]
            window = counts.context_window or counts.messages + budget.ASSUMED_FREE_TOKENS
            ratio = turn.retrieval.context_token_ratio
            shares = budget.shares(window, counts.messages, turn.max_tokens, ratio, self._node_tokens)
            selection = found and within(shares.passages, found, counts.texts[: len(passages)])
            out: frozenset[int] = frozenset()
            room = shares.free - (selection.tokens if selection else 0)
            if counts.context_window:
                # One that is not known has room for the conversation, whatever it takes.
                out = left_out(removable, sizes, room)
            fitting = _understood(_without(turn, out), counts)
            said = zip((at for exchange in removable for at in exchange), sizes, strict=True)
            room -= sum(size for at, size in said if at not in out)
            if counts.context_window and (turn.max_tokens or 0) > shares.answer:
                fitting = await self._limited(fitting, selection, counts.context_window, deadline)
                room = 0  # the answer gets it all
        if out:
            _log.info("history was cut", left_out=len(out), of=len(cut), context_window=counts.context_window)
        return Fit(fitting, selection, len(out), counts.takes_pictures, max(0, room))

    def _bound(
        self, turn: Turn, cut: Sequence[Message], texts: Sequence[str], prompt: Sequence[Message]
    ) -> TokenCounts | None:
        """Return bounds in place of counts, where all fits even by them: counts would decide the same.

        Args:
            turn: What is asked.
            cut: The messages that may be left out.
            texts: The passages' lines, and behind them the texts of these messages.
            prompt: What stays in any case.
        """
        known = self._generator.known(turn.model)
        exact = turn.prompting.pictures or turn.original.tools_json
        if known is None or not known.context_window or exact or any(each.content_json for each in cut):
            return None
        bounds = token_bounds.bound(known, texts, prompt)
        if bounds is None or too_long(bounds):
            return None
        shares = budget.shares(
            known.context_window,
            bounds.messages,
            turn.max_tokens,
            turn.retrieval.context_token_ratio,
            self._node_tokens,
        )
        passages = sum(bounds.texts[: len(texts) - len(cut)])
        history = sum(bounds.texts[len(texts) - len(cut) :]) + budget.MESSAGE_TOKENS * len(cut)
        answers = (turn.max_tokens or 0) <= shares.answer
        return bounds if answers and passages <= shares.passages and passages + history <= shares.free else None

    async def _limited(self, turn: Turn, selection: Selection | None, window: int, deadline: Deadline) -> Turn:
        """The turn with an answer no longer than what its prompt leaves of the window."""
        assert turn.max_tokens is not None
        prompt = prompts.compose(turn, selection.passages if selection else ())
        counts = await self._count(turn, (), prompt, deadline)
        return no_longer(turn, max(0, min(turn.max_tokens, window - counts.messages)))

    async def _count(
        self, turn: Turn, texts: Sequence[str], prompt: Sequence[Message], deadline: Deadline
    ) -> TokenCounts:
        return await counted(self._generator, turn, texts, prompt, deadline)


def _without(turn: Turn, out: frozenset[int]) -> Turn:
    if not out:
        return turn
    return replace(turn, history=tuple(message for at, message in enumerate(turn.history) if at not in out))


def _size(message: Message, tokens: int) -> int:
    return tokens + budget.MESSAGE_TOKENS + (budget.PICTURE_TOKENS if message.content_json else 0)


def _understood(turn: Turn, counts: TokenCounts) -> Turn:
    if not (turn.prompting.follow_ups and counts.only_quotes):
        return turn
    return replace(turn, prompting=replace(turn.prompting, follow_ups=False))


_ALWAYS = ("system", "developer")
_ANSWERS = "assistant"


def exchanges(history: Sequence[Message]) -> list[list[int]]:
    """Places of the messages that may be left out, exchange by exchange, oldest first.

    An exchange is what was said up to and with the answer to it; half of one would be misunderstood. The system's
    messages belong to none, and neither does what came since the latest answer: it is part of the question. A
    message in which the model calls tools is no answer: what they returned belongs to it.
    """
    found: list[list[int]] = []
    answered = True
    for at, message in enumerate(history):
        if message.role in _ALWAYS:
            continue
        asks = message.role != _ANSWERS
        if not found or (asks and answered):
            found.append([])
        found[-1].append(at)
        answered = not asks and not message.calls_tools
    return found if answered else found[:-1]


def left_out(found: Sequence[Sequence[int]], tokens: Sequence[int], room: int) -> frozenset[int]:
    """Places of the messages for which there is no room: the latest exchanges stay, as many as fit.

    Args:
        found: What `exchanges` has found.
        tokens: Of each of their messages, in the same order.
        room: Tokens for all that stays.
    """
    sizes = iter(tokens)
    sized = [(exchange, sum(next(sizes) for _ in exchange)) for exchange in found]
    out: set[int] = set()
    for exchange, size in reversed(sized):
        room -= size
        if room < 0:
            out.update(exchange)
    return frozenset(out)

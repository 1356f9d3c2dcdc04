"""Fit a conversation into its model's context window: omit passages and the oldest exchanges, keep the question.

The pipeline uses this module if the platform writes the prompt (`PromptStyle.SOURCES_AFTER_QUESTION`), or if the
request permits the gateway to omit messages (`Turn.truncates`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog
from servicekit.deadline import Deadline

from gateway.answering import budget, prompts, token_bounds
from gateway.answering.context_selection import (
    count_tokens,
    prompt_lines,
    prompt_too_long,
    select_fitting,
    too_long,
    with_answer_limit,
)
from gateway.answering.timeline import Timeline
from gateway.domain import Message, Selection, TokenCounts, Turn
from gateway.ports.answering import Generator

_log = structlog.get_logger(__name__)
_CALLS = ("tool_calls", "function_call")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Fit:
    """A turn that fits its model's context window.

    Attributes:
        turn: The turn without the omitted messages and without options that its model does not support. The token
            limit of its answer is lowered if the answer would not fit.
        selection: The selected passages, or None if the turn names no index.
        left_out: The number of omitted messages.
        takes_pictures: Whether the model accepts pictures.
        free_tokens: The number of tokens that are still free.
    """

    turn: Turn
    selection: Selection | None
    left_out: int = 0
    takes_pictures: bool = False
    free_tokens: int = 0


class ConversationWindow:
    """Fits turns into the context window.

    Args:
        generator: Counts tokens as the model does, and returns its context window.
        node_tokens: The assumed tokens of a passage. The token budget of the passages is at least this number, or
            all free tokens if they are fewer.
    """

    def __init__(self, generator: Generator, node_tokens: int) -> None:
        self._generator = generator
        self._node_tokens = node_tokens

    async def fit(self, turn: Turn, found: Selection | None, timeline: Timeline, deadline: Deadline) -> Fit:
        """Return the turn and its passages, cut to the context window.

        Raises:
            InvalidRequest: The question and the messages that must be sent with it do not fit.
        """
        with timeline.step("budget"):
            removable = exchanges(turn.history)
            messages = [turn.history[at] for exchange in removable for at in exchange]
            passages = found.passages if found else ()
            texts = [*prompt_lines(passages), *map(_counted_text, messages)]
            shortest = _without(turn, frozenset(at for exchange in removable for at in exchange))
            prompt = prompts.compose(shortest, ())
            counts = self._bound(turn, messages, texts, prompt) or await count_tokens(
                self._generator, turn, texts, prompt, deadline
            )
            if too_long(counts):
                raise prompt_too_long()
            sizes = [_size(*each) for each in zip(messages, counts.texts[len(passages) :], strict=True)]
            window = counts.context_window or counts.messages + budget.ASSUMED_FREE_TOKENS
            ratio = turn.retrieval.context_token_ratio
            shares = budget.shares(window, counts.messages, turn.max_tokens, ratio, self._node_tokens)
            selection = found and select_fitting(shares.passages, found, counts.texts[: len(passages)])
            omitted: frozenset[int] = frozenset()
            free_tokens = shares.free - (selection.tokens if selection else 0)
            if counts.context_window:
                # A model with an unknown window gets the whole conversation.
                omitted = left_out(removable, sizes, free_tokens)
            fitting = _without_unsupported_options(_without(turn, omitted), counts)
            sizes_by_position = zip((at for exchange in removable for at in exchange), sizes, strict=True)
            free_tokens -= sum(size for at, size in sizes_by_position if at not in omitted)
            if counts.context_window and (turn.max_tokens or 0) > shares.answer:
                fitting = await self._limit_answer(fitting, selection, counts.context_window, deadline)
                free_tokens = 0  # the answer gets all free tokens
        if omitted:
            _log.info(
                "history was cut",
                left_out=len(omitted),
                of=len(messages),
                context_window=counts.context_window,
            )
        return Fit(fitting, selection, len(omitted), counts.takes_pictures, max(0, free_tokens))

    def _bound(
        self, turn: Turn, messages: Sequence[Message], texts: Sequence[str], prompt: Sequence[Message]
    ) -> TokenCounts | None:
        """Return upper bounds of the counts, or None if the turn might not fit or needs exact counts.

        If everything fits by upper bounds, exact counts would omit nothing either. Bounds need no call to the
        generator.

        Args:
            turn: The turn.
            messages: The messages that may be omitted.
            texts: The passages' lines, then the texts of these messages.
            prompt: The messages that are always sent.
        """
        known = self._generator.recent_properties(turn.model)
        needs_exact_counts = turn.prompting.pictures or turn.original.tools_json
        if (
            known is None
            or not known.context_window
            or needs_exact_counts
            or any(message.content_json for message in messages)
        ):
            return None
        bounds = token_bounds.upper_bounds(known, texts, prompt)
        if bounds is None or too_long(bounds):
            return None
        shares = budget.shares(
            known.context_window,
            bounds.messages,
            turn.max_tokens,
            turn.retrieval.context_token_ratio,
            self._node_tokens,
        )
        passages = sum(bounds.texts[: len(texts) - len(messages)])
        history = sum(bounds.texts[len(texts) - len(messages) :]) + budget.MESSAGE_TOKENS * len(messages)
        answer_fits = (turn.max_tokens or 0) <= shares.answer
        return bounds if answer_fits and passages <= shares.passages and passages + history <= shares.free else None

    async def _limit_answer(self, turn: Turn, selection: Selection | None, window: int, deadline: Deadline) -> Turn:
        """Return the turn with its answer limited to the tokens that the prompt leaves in the window."""
        assert turn.max_tokens is not None
        prompt = prompts.compose(turn, selection.passages if selection else ())
        counts = await count_tokens(self._generator, turn, (), prompt, deadline)
        return with_answer_limit(turn, max(0, min(turn.max_tokens, window - counts.messages)))


def _without(turn: Turn, omitted: frozenset[int]) -> Turn:
    if not omitted:
        return turn
    return replace(turn, history=tuple(message for at, message in enumerate(turn.history) if at not in omitted))


def _counted_text(message: Message) -> str:
    """Return the texts and the tool calls of a message as one text for the token count."""
    members = _object.decode(message.extra_json) if message.extra_json else {}
    calls = [bytes(members[name]).decode() for name in _CALLS if name in members]
    return "\n".join([message.joined_text, *calls])


def _size(message: Message, tokens: int) -> int:
    return tokens + budget.MESSAGE_TOKENS + (budget.PICTURE_TOKENS if message.content_json else 0)


def _without_unsupported_options(turn: Turn, counts: TokenCounts) -> Turn:
    if not (turn.prompting.follow_ups and counts.only_quotes):
        return turn
    return replace(turn, prompting=replace(turn.prompting, follow_ups=False))


_SYSTEM_ROLES = ("system", "developer")
_ANSWER_ROLE = "assistant"


def exchanges(history: Sequence[Message]) -> list[list[int]]:
    """Return the positions of the messages that may be omitted, exchange by exchange, oldest first.

    An exchange contains the messages up to and including their answer, because half of an exchange would be
    misleading. System messages belong to no exchange. The messages after the latest answer are part of the question
    and belong to no exchange either. A message in which the model calls tools is no answer, and the tools' results
    belong to the same exchange.
    """
    found: list[list[int]] = []
    answered = True
    for at, message in enumerate(history):
        if message.role in _SYSTEM_ROLES:
            continue
        is_question = message.role != _ANSWER_ROLE
        if not found or (is_question and answered):
            found.append([])
        found[-1].append(at)
        answered = not is_question and not message.calls_tools
    return found if answered else found[:-1]


def left_out(found: Sequence[Sequence[int]], tokens: Sequence[int], free_tokens: int) -> frozenset[int]:
    """Return the positions of the messages to omit. The function keeps as many of the latest exchanges as fit.

    Args:
        found: The result of `exchanges`.
        tokens: The tokens of each message of the exchanges, in the same order.
        free_tokens: The maximum number of tokens of the messages that remain.
    """
    sizes = iter(tokens)
    sized = [(exchange, sum(next(sizes) for _ in exchange)) for exchange in found]
    omitted: set[int] = set()
    for exchange, size in reversed(sized):
        free_tokens -= size
        if free_tokens < 0:
            omitted.update(exchange)
    return frozenset(omitted)

"""What of a conversation a model gets where it cannot get everything: the oldest exchanges are left out first."""

from collections.abc import Sequence

from gateway.domain import Message

_ALWAYS = ("system", "developer")
_ANSWERS = "assistant"


def exchanges(history: Sequence[Message]) -> list[list[int]]:
    """Places of the messages that may be left out, exchange by exchange, oldest first.

    An exchange is what was said up to and with the answer to it; half of one would be misunderstood. The system's
    messages belong to none, and neither does what came since the latest answer: it is part of the question.
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
        answered = not asks
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

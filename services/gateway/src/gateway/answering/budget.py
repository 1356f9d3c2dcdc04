"""The token budget: how many passages to fetch, which of them fit, and how long the answer may be.

There are two ways to share a context window. `context_tokens` is the algorithm of the RAGEngine chat completion
(its sections "Token Validation Process", "Dynamic Top-K Calculation" and "Token Allocation Strategy"): it never
cuts the caller's conversation. `shares` is for the chat protocols, whose conversations grow without limit and are
cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.domain import Passage

NODE_TOKENS = 500
"""The assumed tokens of a passage before it is fetched."""

ADDITION_PROMPT_TOKENS = 150
"""Tokens reserved for the text around the passages."""

LEAST_CANDIDATES = 100
MOST_CANDIDATES = 1000
"""The retriever's limit."""

ASSUMED_FREE_TOKENS = 8192
"""The assumed free tokens of a model whose context window is not known."""

ANSWER_TOKENS = 1024
"""Tokens reserved for an answer without a limit, if the context window is large enough."""

MESSAGE_TOKENS = 8
"""The maximum number of tokens that a chat template adds to a message."""

PICTURE_TOKENS = 1000
"""The assumed tokens of an earlier message that has pictures and no text."""

_LIMITS = ("max_tokens", "max_completion_tokens")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def candidates(window: int, prompt_tokens: int, node_tokens: int = NODE_TOKENS) -> int:
    """Return the number of passages to fetch: as many as could fit the context window, within bounds."""
    return min(MOST_CANDIDATES, max(LEAST_CANDIDATES, int((window - prompt_tokens) / node_tokens)))


def context_tokens(
    window: int, prompt_tokens: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS
) -> int:
    """Return the tokens that passages may take.

    Args:
        window: The model's context window.
        prompt_tokens: The conversation without passages.
        max_tokens: The requested limit of the answer, which fits the window beside the conversation.
        ratio: The share of the available tokens, 0.2 to 0.8.
        node_tokens: The assumed tokens of a passage.

    Returns:
        The ratio's share of the free window, or of ``max_tokens`` if that is less. The minimum is one passage, if
        the window has room for it beside the answer: a short answer must not lose its sources.
    """
    available = window - prompt_tokens - ADDITION_PROMPT_TOKENS
    share = int(min(max_tokens or window, available) * ratio)
    left_beside_answer = available - (max_tokens or 0)
    return max(0, min(available, max(share, min(node_tokens, left_beside_answer))))


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a context window.

    Attributes:
        answer: Tokens reserved for the answer.
        free: The remaining tokens beside question and answer: for passages and history.
        passages: The limit of the passages; the history gets the rest.
    """

    answer: int
    free: int
    passages: int


def shares(window: int, fixed: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS) -> Shares:
    """Share the context window of a conversation whose history can be cut.

    The answer gets the requested tokens, but at most half of what the question leaves: a long answer without
    sources is of no use. Passages get the ratio's share of the rest, or the tokens of one passage if that is more.

    Args:
        window: The model's context window.
        fixed: The tokens of the question and of everything that must be sent with it.
        max_tokens: The requested limit of the answer.
        ratio: The share of the available tokens, 0.2 to 0.8.
        node_tokens: The assumed tokens of a passage.

    >>> shares(window=4096, fixed=946, max_tokens=1000, ratio=0.5)  # 150 are reserved for text around passages
    Shares(answer=1000, free=2000, passages=1000)
    >>> shares(window=1146, fixed=946, max_tokens=1000, ratio=0.5)  # a small window: half for the answer
    Shares(answer=25, free=25, passages=25)
    """
    left = max(0, window - fixed - ADDITION_PROMPT_TOKENS)
    answer = min(max_tokens or ANSWER_TOKENS, left // 2)
    free = left - answer
    return Shares(answer, free, max(int(free * ratio), min(node_tokens, free)))


def near_enough(passage: Passage, threshold: float | None) -> bool:
    """Return whether a passage's cosine similarity reaches the threshold; an unknown similarity does."""
    return threshold is None or passage.dense_score is None or passage.dense_score >= threshold


def fits(tokens: Sequence[int], budget: int) -> list[bool]:
    """Return which passages fit, best first; a passage that is too large is skipped.

    Args:
        tokens: The tokens of each passage.
        budget: The tokens for all passages.

    >>> fits([400, 900, 300], budget=1000)
    [True, False, True]
    """
    taken = []
    for size in tokens:
        taken.append(size <= budget)
        budget -= size if size <= budget else 0
    return taken


def limited(members_json: bytes, most: int) -> bytes:
    """Return an OpenAI request, or members of one, with a lowered limit of the answer.

    A request without a limit does not change. The limit keeps the one or two names that the caller used; the other
    members keep their bytes.
    """
    members = _object.decode(members_json)
    limit = msgspec.Raw(b"%d" % most)
    lowered = {name: limit for name in _LIMITS if name in members and _more(members[name], most)}
    return msgspec.json.encode(members | lowered) if lowered else members_json


def _more(raw: msgspec.Raw, most: int) -> bool:
    value = msgspec.json.decode(raw)
    return isinstance(value, int) and value > most

"""Compute the token budget: how many passages to fetch, which of them fit, and how long the answer may be.

Two algorithms share a context window. `context_tokens` is the algorithm of the RAGEngine chat completion (sections
"Token Validation Process", "Dynamic Top-K Calculation" and "Token Allocation Strategy" of its documentation). It
never cuts the caller's conversation. `shares` is for the chat protocols. It cuts long conversations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.domain import Passage

NODE_TOKENS = 500
"""The assumed tokens of a passage that is not fetched yet."""

ADDITION_PROMPT_TOKENS = 150
"""Tokens reserved for the text around the passages."""

MIN_CANDIDATES = 100
MAX_CANDIDATES = 1000
"""The maximum number of passages that the retriever returns."""

ASSUMED_FREE_TOKENS = 8192
"""The assumed free tokens of a model with an unknown context window."""

ANSWER_TOKENS = 1024
"""Tokens reserved for an answer without a limit, if the context window is large enough."""

MESSAGE_TOKENS = 8
"""The maximum number of tokens that a chat template adds to a message."""

PICTURE_TOKENS = 1000
"""The assumed tokens of the picture of one page. All pictures of an earlier message together count as much."""

_LIMIT_MEMBERS = ("max_tokens", "max_completion_tokens")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def candidates(window: int, prompt_tokens: int, node_tokens: int = NODE_TOKENS) -> int:
    """Return the number of passages to fetch: the number that could fit the context window, within bounds."""
    return min(MAX_CANDIDATES, max(MIN_CANDIDATES, int((window - prompt_tokens) / node_tokens)))


def context_tokens(
    window: int, prompt_tokens: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS
) -> int:
    """Return the maximum number of tokens of all passages.

    Args:
        window: The model's context window.
        prompt_tokens: The tokens of the conversation without passages.
        max_tokens: The requested limit of the answer, or None. Conversation and answer must fit the window.
        ratio: The passages' share of the available tokens, 0.2 to 0.8.
        node_tokens: The assumed tokens of a passage.

    Returns:
        The ratio's share of the free window, or of ``max_tokens`` if that is less. The minimum is one passage, if
        the window has room for the passage and the answer. A short answer must not lose its sources.
    """
    available = window - prompt_tokens - ADDITION_PROMPT_TOKENS
    share = int(min(max_tokens or window, available) * ratio)
    left_after_answer = available - (max_tokens or 0)
    return max(0, min(available, max(share, min(node_tokens, left_after_answer))))


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a context window.

    Attributes:
        answer: Tokens reserved for the answer.
        free: The tokens for passages and history. These do not include the question and the answer.
        passages: The maximum tokens of the passages. The history may use the remaining free tokens.
    """

    answer: int
    free: int
    passages: int


def shares(window: int, fixed: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS) -> Shares:
    """Share the context window of a conversation whose history can be cut.

    The answer gets the requested tokens, but at most half of the tokens that the question leaves. This limit
    reserves tokens for sources. Passages get the ratio's share of the remaining tokens, or the tokens of one
    passage if that is more.

    Args:
        window: The model's context window.
        fixed: The tokens of the question and of all messages that must be sent with the question.
        max_tokens: The requested limit of the answer. None means `ANSWER_TOKENS`.
        ratio: The passages' share of the free tokens, 0.2 to 0.8.
        node_tokens: The assumed tokens of a passage.

    >>> shares(window=4096, fixed=946, max_tokens=1000, ratio=0.5)  # 150 are reserved for text around passages
    Shares(answer=1000, free=2000, passages=1000)
    >>> shares(window=1146, fixed=946, max_tokens=1000, ratio=0.5)  # a small window: half for the answer
    Shares(answer=25, free=25, passages=25)
    """
    available = max(0, window - fixed - ADDITION_PROMPT_TOKENS)
    answer = min(max_tokens or ANSWER_TOKENS, available // 2)
    free = available - answer
    return Shares(answer, free, max(int(free * ratio), min(node_tokens, free)))


def reaches_threshold(passage: Passage, threshold: float | None) -> bool:
    """Return whether a passage's cosine similarity reaches the threshold. True if either value is unknown."""
    return threshold is None or passage.dense_score is None or passage.dense_score >= threshold


def fits(tokens: Sequence[int], budget: int) -> list[bool]:
    """Return which passages fit the budget. A passage that is too large does not exclude smaller passages after it.

    Args:
        tokens: The tokens of each passage, best passage first.
        budget: The tokens for all passages.

    >>> fits([400, 900, 300], budget=1000)
    [True, False, True]
    """
    fitting = []
    for size in tokens:
        fitting.append(size <= budget)
        budget -= size if size <= budget else 0
    return fitting


def lower_limits(members_json: bytes, maximum: int) -> bytes:
    """Lower the token limits of an OpenAI request that exceed a maximum.

    The function adds no limit. All other members keep their bytes.

    Args:
        members_json: The request, or some of its members, as an object.
        maximum: The maximum number of tokens of the answer.
    """
    members = _object.decode(members_json)
    limit = msgspec.Raw(b"%d" % maximum)
    lowered = {name: limit for name in _LIMIT_MEMBERS if name in members and _exceeds(members[name], maximum)}
    return msgspec.json.encode(members | lowered) if lowered else members_json


def _exceeds(raw: msgspec.Raw, maximum: int) -> bool:
    value = msgspec.json.decode(raw)
    return isinstance(value, int) and value > maximum

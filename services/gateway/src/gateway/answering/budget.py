"""Tokens: how many passages to fetch, how many tokens they may take, which of them fit, how long the answer may be.

Two ways to share a window. `context_tokens` is the RAGEngine chat completion algorithm's (its sections "Token
Validation Process", "Dynamic Top-K Calculation" and "Token Allocation Strategy"), in which the conversation is the
caller's and stays whole. `shares` is for the chat protocols, in which it may grow for ever and is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.domain import Passage

NODE_TOKENS = 500
"""Tokens that a passage is taken to have before it is known."""

ADDITION_PROMPT_TOKENS = 150
"""Tokens kept back for what is put around the passages."""

LEAST_CANDIDATES = 100
MOST_CANDIDATES = 1000
"""As many as the retriever returns at most."""

ASSUMED_FREE_TOKENS = 8192
"""What a model whose window is not known is taken to read beside the conversation."""

ANSWER_TOKENS = 1024
"""Kept free for an answer of which nobody says how long it may be, where the window is large enough."""

MESSAGE_TOKENS = 8
"""What a chat template adds to a message, at most."""

PICTURE_TOKENS = 1000
"""What a message of an earlier exchange that has no text, but pictures, is taken to have."""

_LIMITS = ("max_tokens", "max_completion_tokens")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def candidates(window: int, prompt_tokens: int, node_tokens: int = NODE_TOKENS) -> int:
    """Number of passages to fetch: as many as could fit the window, within bounds."""
    return min(MOST_CANDIDATES, max(LEAST_CANDIDATES, int((window - prompt_tokens) / node_tokens)))


def context_tokens(
    window: int, prompt_tokens: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS
) -> int:
    """Tokens that passages may take.

    Args:
        window: The model's context window.
        prompt_tokens: The conversation without passages.
        max_tokens: Longest answer that was asked for, and that the window has room for beside the conversation.
        ratio: Share of what is available, 0.2 to 0.8.
        node_tokens: Tokens that a passage is taken to have.

    Returns:
        The ratio's share of what is left of the window, or of ``max_tokens`` where that is less; but never so
        little that a short answer loses its sources: one passage's worth, where the window has that left beside
        the answer.
    """
    available = window - prompt_tokens - ADDITION_PROMPT_TOKENS
    share = int(min(max_tokens or window, available) * ratio)
    left_beside_answer = available - (max_tokens or 0)
    return max(0, min(available, max(share, min(node_tokens, left_beside_answer))))


@dataclass(frozen=True, slots=True)
class Shares:
    """How a window is shared.

    Attributes:
        answer: Tokens that the answer has in any case.
        free: Those beside question and answer: for passages and for what was said before.
        passages: What passages may take of these; history gets what they leave.
    """

    answer: int
    free: int
    passages: int


def shares(window: int, fixed: int, max_tokens: int | None, ratio: float, node_tokens: int = NODE_TOKENS) -> Shares:
    """How the window of a conversation whose history can be cut is shared.

    The answer keeps what was asked for it, but no more than half of what the question leaves: nobody gains from a
    long answer without sources. Passages may take the ratio's share of the rest, or one passage's worth where that
    is more.

    Args:
        window: The model's context window.
        fixed: The question, and what must stand beside it.
        max_tokens: Longest answer that was asked for.
        ratio: Share of what is available, 0.2 to 0.8.
        node_tokens: Tokens that a passage is taken to have.

    >>> shares(window=4096, fixed=946, max_tokens=1000, ratio=0.5)  # 150 are kept for text around passages
    Shares(answer=1000, free=2000, passages=1000)
    >>> shares(window=1146, fixed=946, max_tokens=1000, ratio=0.5)  # a small window: half for the answer
    Shares(answer=25, free=25, passages=25)
    """
    left = max(0, window - fixed - ADDITION_PROMPT_TOKENS)
    answer = min(max_tokens or ANSWER_TOKENS, left // 2)
    free = left - answer
    return Shares(answer, free, max(int(free * ratio), min(node_tokens, free)))


def near_enough(passage: Passage, threshold: float | None) -> bool:
    """Whether its cosine similarity to the question reaches the threshold; one that is not known does."""
    return threshold is None or passage.dense_score is None or passage.dense_score >= threshold


def fits(tokens: Sequence[int], budget: int) -> list[bool]:
    """Which passages are taken, best first: each that fits what is left; one that is too large is skipped.

    Args:
        tokens: Of each passage.
        budget: Tokens for all.

    >>> fits([400, 900, 300], budget=1000)
    [True, False, True]
    """
    taken = []
    for size in tokens:
        taken.append(size <= budget)
        budget -= size if size <= budget else 0
    return taken


def limited(members_json: bytes, most: int) -> bytes:
    """An OpenAI request, or members of one, with no longer answer than this; where it asks for none, as it came.

    The limit stays under the name, or the two names, that the caller has used; the other members keep their bytes.
    """
    members = _object.decode(members_json)
    limit = msgspec.Raw(b"%d" % most)
    lowered = {name: limit for name in _LIMITS if name in members and _more(members[name], most)}
    return msgspec.json.encode(members | lowered) if lowered else members_json


def _more(raw: msgspec.Raw, most: int) -> bool:
    value = msgspec.json.decode(raw)
    return isinstance(value, int) and value > most

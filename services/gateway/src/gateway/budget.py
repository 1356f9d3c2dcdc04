"""Tokens: how many passages to fetch, how many tokens they may take, which of them fit.

The arithmetic is that of the RAGEngine chat completion algorithm (its sections "Dynamic Top-K Calculation" and
"Token Allocation Strategy").
"""

from collections.abc import Sequence

from gateway.domain import Passage

NODE_TOKENS = 500
"""Tokens that a passage is taken to have before it is known."""

ADDITION_PROMPT_TOKENS = 150
"""Tokens kept back for what is put around the passages."""

LEAST_CANDIDATES = 100
MOST_CANDIDATES = 1000
"""As many as the retriever returns at most."""


def candidates(window: int, prompt_tokens: int) -> int:
    """Number of passages to fetch: as many as could fit the window, within bounds."""
    return min(MOST_CANDIDATES, max(LEAST_CANDIDATES, int((window - prompt_tokens) / NODE_TOKENS)))


def context_tokens(window: int, prompt_tokens: int, max_tokens: int | None, ratio: float) -> int:
    """Tokens that passages may take.

    Args:
        window: The model's context window.
        prompt_tokens: The conversation without passages.
        max_tokens: Longest answer that was asked for.
        ratio: Share of what is available, 0.2 to 0.8.

    Returns:
        The ratio's share of what is left of the window, or of ``max_tokens`` where that is less; but never so
        little that a short answer loses its sources: one passage's worth, where the window has that left beside
        the answer.
    """
    available = window - prompt_tokens - ADDITION_PROMPT_TOKENS
    share = int(min(max_tokens or window, available) * ratio)
    left_beside_answer = available - (max_tokens or 0)
    return max(0, min(available, max(share, min(NODE_TOKENS, left_beside_answer))))


def select(passages: Sequence[Passage], tokens: Sequence[int], budget: int) -> tuple[Passage, ...]:
    """The passages that fit, best first; one larger than what is left is skipped, smaller ones may follow."""
    kept = []
    for passage, size in zip(passages, tokens, strict=True):
        if size <= budget:
            kept.append(passage)
            budget -= size
    return tuple(kept)

"""Select the passages of an answer: how many to fetch, which are similar enough, and which fit the context window.

`ContextSelection.select` never cuts the caller's conversation. It follows the RAGEngine chat completion algorithm
(sections "Token Validation" and "ContextSelectionProcessor" of its documentation). `conversation_window` fits
conversations that the gateway may cut.
"""

import itertools
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.answering import budget, prompts
from gateway.answering.timeline import Timeline
from gateway.domain import Message, Passage, Selection, TokenCounts, Turn
from gateway.ports.answering import Generator, Retriever

_log = structlog.get_logger(__name__)
_DIGEST = re.compile("[0-9a-f]{64}")
_MIN_LABEL_LENGTH = 8


class ContextSelection:
    """Finds passages and selects among them.

    Args:
        retriever: Finds passages.
        generator: Counts tokens as the model does, and returns its context window.
        node_tokens: The assumed tokens of a passage that is not fetched yet.
    """

    def __init__(self, retriever: Retriever, generator: Generator, node_tokens: int) -> None:
        self._retriever = retriever
        self._generator = generator
        self._node_tokens = node_tokens

    async def search(self, turn: Turn, query: str, timeline: Timeline, deadline: Deadline) -> Selection | None:
        """Return the best passages for a query that are similar enough, or None if the turn names no index.

        The retriever returns as many passages as the turn requests. Without a requested number, it returns as many
        as the context window could contain.

        Raises:
            NotFound: An index does not exist.
            InvalidRequest: The conversation alone does not fit the context window.
        """
        if not turn.retrieval.indexes:
            return None
        with timeline.step("retrieve"):
            top = turn.retrieval.top
            if top is None:
                top = await self._candidates(turn, deadline)
            found = await self._retriever.retrieve(turn.principal, turn.retrieval, query, top, deadline)
            timeline.add_inner_steps("retrieve", found.steps)
        similar = _similar(labelled(found.passages), turn.retrieval.similarity_threshold)
        return replace(similar, not_reranked=found.not_reranked)

    async def _candidates(self, turn: Turn, deadline: Deadline) -> int:
        """Return the number of passages to fetch."""
        known = self._generator.recent_properties(turn.model)
        if known is not None:
            candidates = budget.candidates(known.context_window, 0, self._node_tokens)
            if candidates == budget.MIN_CANDIDATES:  # the conversation cannot lower the number further
                return candidates
        counts = await count_tokens(self._generator, turn, (), prompts.compose(turn, ()), deadline)
        if too_long(counts):
            # The RAGEngine reports an unknown index before a prompt that is too long.
            await self._retriever.check_indexes(turn.principal, turn.retrieval.indexes, deadline)
            raise prompt_too_long()
        return budget.candidates(counts.context_window, counts.messages, self._node_tokens)

    async def select(
        self, turn: Turn, found: Selection, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, Selection]:
        """Return the turn with a token limit of the answer, and the passages for the model.

        The conversation, the passages and the answer's limit together fit a known context window. A turn without a
        limit does not get one.

        Raises:
            InvalidRequest: The conversation alone does not fit the context window.
        """
        with timeline.step("budget"):
            counts = await count_tokens(
                self._generator, turn, prompt_lines(found.passages), prompts.compose(turn, ()), deadline
            )
            if too_long(counts):
                raise prompt_too_long()
            window, prompt = counts.context_window, counts.messages
            answer_limit = _lowered_limit(window, prompt, turn.max_tokens)
            token_budget = budget.context_tokens(
                window or prompt + budget.ASSUMED_FREE_TOKENS,
                prompt,
                answer_limit,
                turn.retrieval.context_token_ratio,
                self._node_tokens,
            )
            selection = select_fitting(token_budget, found, counts.texts)
            needed = prompt + selection.tokens + budget.ADDITION_PROMPT_TOKENS + (answer_limit or 0)
            if window and answer_limit and needed > window:
                counts = await count_tokens(
                    self._generator, turn, (), _messages_to_send(turn, selection.passages), deadline
                )
                answer_limit = max(0, min(answer_limit, window - counts.messages))
        return with_answer_limit(turn, answer_limit), selection


async def count_tokens(
    generator: Generator, turn: Turn, texts: Sequence[str], prompt: Sequence[Message], deadline: Deadline
) -> TokenCounts:
    """Return the token counts of texts and of a prompt with the request's tools."""
    tools = [turn.original.tools_json.decode("utf-8", "replace")] if turn.original.tools_json else []
    counts = await generator.count_tokens(turn.principal, turn.model, [*texts, *tools], prompt, deadline)
    text_counts = counts.texts[: len(texts)]
    return replace(counts, texts=text_counts, messages=counts.messages + sum(counts.texts[len(texts) :]))


def _messages_to_send(turn: Turn, passages: Sequence[Passage]) -> Sequence[Message]:
    """Return the messages for the model.

    Without passages these are the unchanged messages of the request, if the turn contains them.
    """
    return (not passages and turn.original.messages) or prompts.compose(turn, passages)


def labelled(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Return the passages, each with a short name for citations.

    A document that a client sent as text without an id has the 64 hexadecimal digits of its hash as its id. These
    digits cost about 37 tokens per passage. The document's label is the shortest unique prefix of the hash, of 8
    digits or more.
    """
    unnamed = {
        passage.document_id
        for passage in passages
        if passage.sourcefile == passage.document_id and _DIGEST.fullmatch(passage.document_id)
    }
    if not unnamed:
        return passages
    named = {passage.sourcepage for passage in passages if passage.document_id not in unnamed}
    labels = {digest: _label(digest, named | unnamed - {digest}) for digest in unnamed}
    return [
        replace(
            passage, sourcepage=labels[passage.document_id] + passage.sourcepage.removeprefix(passage.document_id)
        )
        if passage.document_id in labels
        else passage
        for passage in passages
    ]


def _label(digest: str, others: Collection[str]) -> str:
    lengths = range(_MIN_LABEL_LENGTH, len(digest) + 1)
    return next(digest[:end] for end in lengths if not any(other.startswith(digest[:end]) for other in others))


def prompt_lines(passages: Sequence[Passage]) -> list[str]:
    """Return the text of each passage in a prompt, with the line break after it."""
    return [f"{prompts.data_point(passage)}\n" for passage in passages]


def too_long(counts: TokenCounts) -> bool:
    """Return whether the conversation alone does not fit the context window."""
    return bool(counts.context_window) and counts.messages > counts.context_window


def prompt_too_long() -> InvalidRequest:
    """Return the error for a conversation that does not fit."""
    return InvalidRequest("Prompt length exceeds context window.", field="messages")


def _lowered_limit(window: int, prompt: int, max_tokens: int | None) -> int | None:
    """Return the requested limit of the answer, lowered to the tokens that the conversation leaves."""
    if not window or max_tokens is None or max_tokens <= window - prompt:
        return max_tokens
    _log.warning(
        f"max_tokens ({max_tokens}) is greater than available context after prompt consideration. "
        f"Setting to {window - prompt}."
    )
    return window - prompt


def _similar(found: Sequence[Passage], threshold: float | None) -> Selection:
    """Return the passages that are similar enough to the question."""
    is_similar = [budget.reaches_threshold(passage, threshold) for passage in found]
    for passage, reaches in zip(found, is_similar, strict=True):
        if not reaches:
            _log_choice(passage, "under threshold")
    return Selection(tuple(itertools.compress(found, is_similar)), under_threshold=is_similar.count(False))


def select_fitting(token_budget: int, found: Selection, tokens: Sequence[int]) -> Selection:
    """Return the passages that fit."""
    fitting = budget.fits(tokens, token_budget)
    if _log.is_enabled_for(logging.DEBUG):  # checked once for a hundred passages
        for passage, size, fits in zip(found.passages, tokens, fitting, strict=True):
            _log_choice(passage, "kept" if fits else "too large", size)
    return replace(
        found,
        passages=tuple(itertools.compress(found.passages, fitting)),
        tokens=sum(itertools.compress(tokens, fitting)),
        too_large=fitting.count(False),
    )


def _log_choice(passage: Passage, fate: str, tokens: int | None = None) -> None:
    _log.debug(
        "node",
        node_id=passage.id,
        fate=fate,
        tokens=tokens,
        score=passage.score,
        dense_score=passage.dense_score,
    )


def with_answer_limit(turn: Turn, answer_limit: int | None) -> Turn:
    """Return the turn with a lower token limit of the answer, or the same turn if the limit is None.

    The function changes the members that the request used for its limit.
    """
    if answer_limit is None or answer_limit == turn.max_tokens:
        return turn
    original = turn.original.json
    return replace(
        turn,
        max_tokens=answer_limit,
        parameters_json=budget.lower_limits(turn.parameters_json, answer_limit),
        original=replace(turn.original, json=original and budget.lower_limits(original, answer_limit)),
    )

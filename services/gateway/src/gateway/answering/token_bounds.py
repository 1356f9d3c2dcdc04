"""Upper bounds of token counts. If everything fits even by these bounds, no exact count is needed."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from gateway.answering import budget
from gateway.domain import Message, TokenCounts

TEMPLATE_TOKENS = 512
"""The maximum number of tokens that a chat template adds to a conversation, for example a date or instructions."""


def most_tokens(text: str) -> int:
    """Return an upper bound of the text's bytes in each normal form that a tokenizer may apply.

    A token has at least one byte.

    >>> most_tokens("Ferry"), most_tokens("Fähre")
    (5, 13)
    """
    if text.isascii():
        return len(text)
    # The text or its decomposed form may be longer; their sum is longer than every form.
    return sum(len(form.encode("utf-8", "replace")) for form in (text, unicodedata.normalize("NFKD", text)))


def bound(known: TokenCounts, texts: Sequence[str], prompt: Sequence[Message]) -> TokenCounts | None:
    """Return a bound instead of each count; None if a message has more than its text.

    Args:
        known: The properties of the model.
        texts: Texts that are counted one by one.
        prompt: Messages that are counted as a conversation.
    """
    if any(message.content_json or message.extra_json for message in prompt):
        return None
    messages = sum(most_tokens(message.text) + budget.MESSAGE_TOKENS for message in prompt)
    return replace(known, texts=tuple(map(most_tokens, texts)), messages=messages + TEMPLATE_TOKENS)

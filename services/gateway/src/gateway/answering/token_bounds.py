"""Compute upper bounds of token counts. A prompt that fits by these bounds needs no exact count."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from gateway.answering import budget
from gateway.domain import Message, TokenCounts

TEMPLATE_TOKENS = 512
"""The maximum number of tokens that a chat template adds to a conversation, for example a date or instructions."""


def max_tokens(text: str) -> int:
    """Return an upper bound of a text's tokens.

    A token has at least one byte, and a tokenizer may apply any Unicode normal form. For a text that is not ASCII,
    the bound is the sum of the bytes of the text and of its decomposed form (NFKD).

    >>> max_tokens("Ferry"), max_tokens("Fähre")
    (5, 13)
    """
    if text.isascii():
        return len(text)
    # The sum of the text and its decomposed form is longer than every normal form.
    return sum(len(form.encode("utf-8", "replace")) for form in (text, unicodedata.normalize("NFKD", text)))


def upper_bounds(known: TokenCounts, texts: Sequence[str], prompt: Sequence[Message]) -> TokenCounts | None:
    """Return upper bounds in place of counts, or None if a message contains more than text.

    Args:
        known: The properties of the model.
        texts: Texts to count one by one.
        prompt: Messages to count as a conversation.
    """
    if any(message.content_json or message.extra_json for message in prompt):
        return None
    messages = sum(max_tokens(message.text) + budget.MESSAGE_TOKENS for message in prompt)
    return replace(known, texts=tuple(map(max_tokens, texts)), messages=messages + TEMPLATE_TOKENS)

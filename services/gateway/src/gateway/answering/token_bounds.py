"""Upper bounds of numbers of tokens. They spare a count where all that they bound fits."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from gateway.answering import budget
from gateway.domain import Message, TokenCounts

TEMPLATE_TOKENS = 512
"""What a chat template adds to a conversation, such as a date or instructions of its own."""


def most_tokens(text: str) -> int:
    """Return a number of bytes that the text does not exceed in any normal form that a tokenizer gives it first.

    A token has one byte at least.

    >>> most_tokens("Ferry"), most_tokens("Fähre")
    (5, 13)
    """
    if text.isascii():
        return len(text)
    # A character may be longer as it is or decomposed; together they are longer than any form.
    return sum(len(form.encode("utf-8", "replace")) for form in (text, unicodedata.normalize("NFKD", text)))


def bound(known: TokenCounts, texts: Sequence[str], prompt: Sequence[Message]) -> TokenCounts | None:
    """Return a bound in place of each count; None where a message has something besides its text.

    Args:
        known: What is known of the model.
        texts: Counted one by one.
        prompt: Counted as a conversation.
    """
    if any(message.content_json or message.extra_json for message in prompt):
        return None
    messages = sum(most_tokens(message.text) + budget.MESSAGE_TOKENS for message in prompt)
    return replace(known, texts=tuple(map(most_tokens, texts)), messages=messages + TEMPLATE_TOKENS)

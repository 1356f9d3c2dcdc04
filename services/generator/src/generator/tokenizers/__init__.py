"""Counting tokens, and the chat templates that add to them; `counter` makes the counter that a model needs.

Tokenizers and estimates belong here. The budgets that use the counts belong to the gateway.
"""

from generator.tokenizers.factory import TokenizerSpec, counter

__all__ = ["TokenizerSpec", "counter"]

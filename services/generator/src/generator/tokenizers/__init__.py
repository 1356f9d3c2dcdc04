"""Counting tokens, and the chat templates that add to them. `counter` makes the counter that a model needs."""

from generator.tokenizers.choice import TokenizerSpec, counter

__all__ = ["TokenizerSpec", "counter"]

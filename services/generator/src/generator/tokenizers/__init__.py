"""Token counters and chat templates; `counter` returns the token counter of a model.

Tokenizers and estimates belong here. The token budgets belong in the gateway.
"""

from generator.tokenizers.factory import TokenizerSpec, counter

__all__ = ["TokenizerSpec", "counter"]

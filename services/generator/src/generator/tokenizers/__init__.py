"""Token counters and the chat templates that add tokens; `counter` makes the counter of a model.

Tokenizers and estimates belong here. The budgets that use the counts belong to the gateway.
"""

from generator.tokenizers.factory import TokenizerSpec, counter

__all__ = ["TokenizerSpec", "counter"]

"""Add token counts of answers that need several calls to a model."""

from typing import Any

import msgspec

from gateway.domain import Usage
from gateway.domain.deltas import members_of

_encode = msgspec.json.encode


def add_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum of two token counts, including the model server's details."""
    raw = [members_of(usage.raw_json) for usage in (first, second) if usage.raw_json]
    summed = _encode(_sum(*raw)) if len(raw) > 1 else _encode(raw[0]) if raw else b""
    return Usage(
        first.prompt_tokens + second.prompt_tokens, first.completion_tokens + second.completion_tokens, summed
    )


def _sum(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    whole = dict(first)
    for name, value in second.items():
        known = whole.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            whole[name] = _sum(known, value)
        elif isinstance(value, int | float) and isinstance(known, int | float):
            whole[name] = known + value
        elif value is not None:
            whole[name] = value
    return whole

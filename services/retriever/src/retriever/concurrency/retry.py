"""Retries of reads whose index was replaced while they ran."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from retriever.domain.index import Replaced

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 4


def retry_when_replaced(question: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Retry an idempotent method when its index was replaced while it ran."""

    @functools.wraps(question)
    async def retried(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return await question(*args, **options)
            except Replaced:
                continue
        return await question(*args, **options)

    return retried

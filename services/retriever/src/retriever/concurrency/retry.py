"""Retries of idempotent methods whose index was replaced while they ran."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from retriever.domain.index import Replaced

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS = 4


def retry_when_replaced(read: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Return a method that calls an idempotent method, and calls it again if the index was replaced meanwhile.

    The method is called at most four times.
    """

    @functools.wraps(read)
    async def retried(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await read(*args, **options)
            except Replaced:
                continue
        return await read(*args, **options)

    return retried

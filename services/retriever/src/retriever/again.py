"""Asking once more where an index was replaced in the middle of a question."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from retriever.domain import Replaced

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 3


def again(question: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The question, asked again of what has taken the index's place. It changes nothing, or may be done twice."""

    @functools.wraps(question)
    async def asked(*args: P.args, **options: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return await question(*args, **options)
            except Replaced:
                continue
        return await question(*args, **options)

    return asked

"""A gate that many pass at a time, or one alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Gate:
    """Lets many through at a time, or one alone."""

    def __init__(self) -> None:
        self._inside = 0
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Held by one of many; waits while somebody is alone."""
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @contextlib.asynccontextmanager
    async def alone(self, seconds: float) -> AsyncIterator[None]:
        """Held by one alone, at one time, when those who are inside have left; nobody else comes in meanwhile.

        Raises:
            TimeoutError: They have not left after so many seconds.
        """
        self._open.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
            yield
        finally:
            self._open.set()

"""The calls of agents that run now: a gateway ends a cancelled one, or tells the other gateways."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator


async def _no_other(_name: str) -> None:
    """Do nothing: there is one gateway."""


class RunningCalls:
    """The calls of one gateway, by name.

    Attributes:
        tell: Tells the other gateways which call was cancelled.
    """

    def __init__(self) -> None:
        self.tell: Callable[[str], Awaitable[None]] = _no_other
        self._running: dict[str, Callable[[], object]] = {}

    @contextlib.contextmanager
    def running(self, name: str, cancel: Callable[[], object]) -> Iterator[None]:
        """Knows a call while the block runs.

        Args:
            name: Names it among all gateways.
            cancel: Ends it.
        """
        self._running[name] = cancel
        try:
            yield
        finally:
            if self._running.get(name) is cancel:
                del self._running[name]

    async def cancel(self, name: str) -> None:
        """End a call, wherever it runs; nothing where it does not."""
        if not self.cancel_here(name):
            await self.tell(name)

    def cancel_here(self, name: str) -> bool:
        """End a call that runs at this gateway; return whether it does."""
        cancel = self._running.get(name)
        if cancel is None:
            return False
        cancel()
        return True

"""Registers running calls (tool calls of agents, background responses), so that any gateway can cancel them."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator


async def _notify_none(_name: str) -> None:
    """Do nothing: there is only one gateway."""


class RunningCalls:
    """The running calls of one gateway, by name.

    Attributes:
        notify: Notifies the other gateways of a cancelled call.
    """

    def __init__(self) -> None:
        self.notify: Callable[[str], Awaitable[None]] = _notify_none
        self._running: dict[str, Callable[[], object]] = {}

    @contextlib.contextmanager
    def running(self, name: str, cancel: Callable[[], object]) -> Iterator[None]:
        """Register a call until the block ends.

        Args:
            name: The name of the call, unique among all gateways.
            cancel: Cancels the call.
        """
        self._running[name] = cancel
        try:
            yield
        finally:
            if self._running.get(name) is cancel:
                del self._running[name]

    async def cancel(self, name: str) -> None:
        """Cancel a call on any gateway. Do nothing if no gateway runs the call."""
        if not self.cancel_here(name):
            await self.notify(name)

    def cancel_here(self, name: str) -> bool:
        """Cancel a call on this gateway. Return False if the call does not run on this gateway."""
        cancel = self._running.get(name)
        if cancel is None:
            return False
        cancel()
        return True

"""The running calls of agents: a gateway ends a cancelled one, or notifies the other gateways."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator


async def _no_other(_name: str) -> None:
    """Do nothing: there is only one gateway."""


class RunningCalls:
    """The calls of one gateway, by name.

    Attributes:
        notify: Notifies the other gateways of a cancelled call.
    """

    def __init__(self) -> None:
        self.notify: Callable[[str], Awaitable[None]] = _no_other
        self._running: dict[str, Callable[[], object]] = {}

    @contextlib.contextmanager
    def running(self, name: str, cancel: Callable[[], object]) -> Iterator[None]:
        """Register a call while the block runs.

        Args:
            name: The name of the call, unique among all gateways.
            cancel: Ends it.
        """
        self._running[name] = cancel
        try:
            yield
        finally:
            if self._running.get(name) is cancel:
                del self._running[name]

    async def cancel(self, name: str) -> None:
        """End a call on any gateway; do nothing if it does not run."""
        if not self.cancel_here(name):
            await self.notify(name)

    def cancel_here(self, name: str) -> bool:
        """End a call on this gateway; return whether it runs here."""
        cancel = self._running.get(name)
        if cancel is None:
            return False
        cancel()
        return True

"""The configured rerankers by name."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from servicekit.errors import NotFound

from retriever.rerankers.resilience import ResilientReranker


class Rerankers:
    """Rerankers by name.

    The first call opens the connection, so a server may be unavailable at the start.

    Args:
        rerankers: The rerankers, the default first. Without rerankers, nothing is reranked.
    """

    def __init__(self, rerankers: Sequence[ResilientReranker] = ()) -> None:
        self._rerankers = {reranker.name: reranker for reranker in rerankers}
        self.default = rerankers[0] if rerankers else None

    def get(self, name: str) -> ResilientReranker | None:
        """Return a reranker by name. For an empty name, return the default, or None if no reranker is configured.

        Raises:
            NotFound: The reranker does not exist.
        """
        if not name:
            return self.default
        if name not in self._rerankers:
            raise NotFound(f"No such reranker: '{name}'.", resource=name)
        return self._rerankers[name]

    def resting(self) -> list[tuple[float, dict[str, str]]]:
        """Return for each reranker whether its circuit breaker is open (1) or not (0), for a gauge."""
        return [
            (float(reranker.is_resting()), {"causeway.reranker": name})
            for name, reranker in self._rerankers.items()
        ]

    async def aclose(self) -> None:
        """Close all rerankers."""
        async with AsyncExitStack() as closing:
            for reranker in self._rerankers.values():
                closing.push_async_callback(reranker.aclose)

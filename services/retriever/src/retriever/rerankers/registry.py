"""The rerankers that the service has, by their names."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from servicekit.errors import NotFound

from retriever.rerankers.resilience import ResilientReranker


class Rerankers:
    """Rerankers by name. Connections are opened by the first call, so a server may be away at the start.

    Args:
        rerankers: The first is the default; none: nothing is reranked.
    """

    def __init__(self, rerankers: Sequence[ResilientReranker] = ()) -> None:
        self._rerankers = {each.name: each for each in rerankers}
        self.default = rerankers[0] if rerankers else None

    def get(self, name: str) -> ResilientReranker | None:
        """A reranker; the default where no name is given, None where there are none at all.

        Raises:
            NotFound: There is no such one.
        """
        if not name:
            return self.default
        if name not in self._rerankers:
            raise NotFound(f"No such reranker: '{name}'.", resource=name)
        return self._rerankers[name]

    def resting(self) -> list[tuple[float, dict[str, str]]]:
        """Which are left alone at present (1) and which are asked (0), as a gauge has it."""
        return [(float(each.is_resting()), {"causeway.reranker": name}) for name, each in self._rerankers.items()]

    async def aclose(self) -> None:
        """Closes them all."""
        async with AsyncExitStack() as closing:
            for each in self._rerankers.values():
                closing.push_async_callback(each.aclose)

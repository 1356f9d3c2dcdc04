"""An embedder for tests that records the texts, and that can fail or hang."""

import asyncio
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway_testing.embedding import HashingEmbedder


class RecordingEmbedder(HashingEmbedder):
    """Records the embedded texts.

    Args:
        dimension: The length of each vector.

    Attributes:
        embedded: The texts of all calls.
        failure: The error of each call. None: calls succeed.
        responds: Calls wait while this event is not set.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.embedded: list[str] = []
        self.failure: Exception | None = None
        self.responds = asyncio.Event()
        self.responds.set()

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed the texts."""
        self.embedded += texts
        await self.responds.wait()
        if self.failure is not None:
            raise self.failure
        return await super().embed(texts)

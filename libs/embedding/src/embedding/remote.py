"""Embeds texts on servers: in batches, with limited concurrency, retries, and checks of the vectors."""

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import structlog
from servicekit.errors import CausewayError, DeadlineExceeded, RateLimited, Unavailable

from embedding.config import EmbeddingConfig
from embedding.errors import SetupError, Unreachable, WrongVectors
from embedding.fair_limiter import FairLimiter
from embedding.port import Tokenizer, check_texts
from embedding.tokenizer import ApproximateTokenizer, FileTokenizer

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS = 0.1
# If a server requests a longer pause, the call fails, and its caller may wait.
_MAX_PAUSE_SECONDS = 20.0

Vectors = npt.NDArray[np.float32]


class Source(Protocol):
    """A server with an embedding model."""

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """Send one request.

        Returns:
            One row for each text, in the order of the texts. The dimension and the norm are not checked.

        Raises:
            RateLimited, Unavailable: A retry may succeed.
            CausewayError: A retry cannot succeed.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class RemoteEmbedder:
    """Embeds through a server; see `embedding.port.Embedder`.

    Args:
        config: The model and its limits.
        source: The client of the server.

    Raises:
        SetupError: The tokenizer cannot be read.
    """

    def __init__(self, config: EmbeddingConfig, source: Source) -> None:
        self.model = config.public_name
        self.dimension = config.dimension
        self.max_tokens = config.max_tokens
        self.tokenizer: Tokenizer = ApproximateTokenizer()
        if config.tokenizer is not None:
            try:
                self.tokenizer = FileTokenizer(config.tokenizer)
            except Exception as error:  # the library has no more specific exception
                raise SetupError(f"The tokenizer {config.tokenizer} cannot be read: {error}") from error
        self._config = config
        self._source = source
        self._limiter = FairLimiter(config.concurrency, f"The embedding model '{self.model}' is shut down.")
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts in batches; see `embedding.port.Embedder.embed`.

        Raises:
            RateLimited: The server is still busy after several attempts, or requests a long pause.
            DeadlineExceeded: The server did not answer in time.
        """
        check_texts(texts)
        size = self._config.batch
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        vectors = await self._limiter.map(self._embed_batch, batches)
        return np.concatenate([np.empty((0, self.dimension), np.float32), *vectors])

    async def aclose(self) -> None:
        """Wait for running requests, then close the connections."""
        if self._closed:
            return
        self._closed = True
        await self._limiter.aclose()
        await self._source.aclose()

    async def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        vectors = await self._vectors_with_retries(await asyncio.to_thread(self._truncate, texts))
        return self._normalise(vectors, len(texts))

    def _truncate(self, texts: Sequence[str]) -> list[str]:
        """Truncate texts to the model's limit, because some servers refuse longer texts."""
        return [self._first_tokens(text) for text in texts]

    def _first_tokens(self, text: str) -> str:
        # A token has at least one character, so most texts need no tokenization.
        if len(text) <= self.max_tokens:
            return text
        spans = self.tokenizer.spans(text)
        return text if len(spans) <= self.max_tokens else text[: spans[self.max_tokens - 1][1]]

    async def _vectors_with_retries(self, texts: list[str]) -> Vectors:
        """Return the vectors; retry while the server is busy or unavailable."""
        for attempt in range(1, self._config.tries + 1):
            try:
                async with asyncio.timeout(self._config.timeout):
                    return await self._source.vectors(texts)
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"The embedding server of '{self.model}' did not answer within {self._config.timeout:g} s."
                ) from error
            except WrongVectors:
                raise
            except (RateLimited, Unavailable) as error:
                pause = _pause(error, attempt)
                if attempt == self._config.tries or pause > _MAX_PAUSE_SECONDS:
                    raise
                _log.info("retrying the embedding server", model=self.model, error=error.message, pause=pause)
            await asyncio.sleep(pause)
        raise AssertionError("there is at least one attempt")

    def _normalise(self, vectors: Vectors, count: int) -> Vectors:
        """Return the vectors, normalised to length 1.

        Raises:
            WrongVectors: The vectors have a wrong shape, or the norm 0.
        """
        if vectors.shape != (count, self.dimension):
            shape = " by ".join(map(str, vectors.shape))
            raise WrongVectors(
                f"The embedding server of '{self.model}' sent {shape} numbers, not {count} by {self.dimension}."
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise WrongVectors(f"The embedding server of '{self.model}' sent vectors that cannot be normalised.")
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit


def _pause(error: CausewayError, attempt: int) -> float:
    """Return the server's retry time, or an exponential back-off with jitter if the back-off is longer."""
    # The retry time of an unreachable server is only a default for clients.
    delay: float = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311  # not for security
    return delay if isinstance(error, Unreachable) else max(delay, error.retry_after or 0.0)

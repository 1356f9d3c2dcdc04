"""Time-out, concurrency limit and circuit breaker of a reranker."""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

from retriever.ports.reranker import Rating, Reranker, RerankerFailed

_log = structlog.get_logger(__name__)
_FAILURES = 3
"""Consecutive failures that open the circuit breaker."""


class ResilientReranker:
    """A reranker with a time-out, a concurrency limit and a circuit breaker.

    The time-out includes the wait for a slot. After three consecutive failures the circuit breaker opens, so that a
    dead server does not delay every search. After ``rest`` seconds, one search calls the reranker again.

    Args:
        reranker: The reranker to call.
        name: The name of the reranker.
        candidates: Maximum number of passages that the reranker receives.
        required: Whether a search fails if the reranker fails.
        timeout: Maximum seconds of a call.
        concurrency: Maximum number of concurrent calls; others wait.
        rest: Seconds that the circuit breaker stays open.
        now: The clock.
    """

    def __init__(
        self,
        reranker: Reranker,
        name: str,
        *,
        candidates: int = 50,
        required: bool = False,
        timeout: float = 2.0,
        concurrency: int = 8,
        rest: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.candidates = candidates
        self.required = required
        self._reranker = reranker
        self._timeout = timeout
        self._slots = asyncio.Semaphore(concurrency)
        self._rest = rest
        self._now = now
        self._failures = 0
        self._open_until = 0.0

    def is_resting(self) -> bool:
        """Return whether the circuit breaker is open."""
        return self._failures >= _FAILURES and self._now() < self._open_until

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Rate texts; see `ports.reranker.Reranker.rate`.

        Raises:
            Unavailable: The circuit breaker is open, or the server is unavailable.
        """
        if self.is_resting():
            raise Unavailable(f"The reranker '{self.name}' has failed several times and is not called for a while.")
        if self._failures >= _FAILURES:
            self._open_until = self._now() + self._rest  # meanwhile, other searches do not try
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                ratings = await self._reranker.rate(query, texts)
        except TimeoutError as error:
            failure = DeadlineExceeded(f"The reranker '{self.name}' did not answer within {self._timeout:g} s.")
            self._failed(failure)
            raise failure from error
        except CausewayError as error:
            self._failed(error)
            raise
        except Exception as error:
            failed = RerankerFailed(f"The reranker '{self.name}' failed.")
            self._failed(failed)
            raise failed from error
        if self._failures >= _FAILURES:
            _log.info("the reranker is available again", reranker=self.name)
        self._failures = 0
        return ratings

    async def aclose(self) -> None:
        """Close the reranker."""
        await self._reranker.aclose()

    def _failed(self, error: CausewayError) -> None:
        self._failures += 1
        if self._failures >= _FAILURES:
            self._open_until = self._now() + self._rest
            _log.warning(
                "the reranker is not called for a while",
                reranker=self.name,
                seconds=self._rest,
                error=error.message,
            )

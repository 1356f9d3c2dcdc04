"""Time-out, concurrency limit and circuit breaker of a reranker."""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

from retriever.ports.reranker import Rating, Reranker, Unranked

_log = structlog.get_logger(__name__)
_FAILURES = 3
"""In a row; then nobody asks for a while."""


class ResilientReranker:
    """A reranker that a search can rely on to end: with ratings, or with an error within its time.

    Waiting for a turn counts against the time. After three failures in a row it is left alone for a while, so that
    a dead server does not cost every search its time out; the first search after that tries again, alone.

    Args:
        reranker: Rates.
        name: Of it.
        candidates: How many passages it gets, at most.
        required: A search that wants it fails with it.
        timeout: Seconds for one answer.
        concurrency: Answers that it works on at a time; others wait.
        rest: Seconds that it is left alone.
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
        self._turns = asyncio.Semaphore(concurrency)
        self._rest = rest
        self._now = now
        self._failures = 0
        self._rests_until = 0.0

    def is_resting(self) -> bool:
        """Whether it is left alone at present."""
        return self._failures >= _FAILURES and self._now() < self._rests_until

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """See `rerankers.port.Reranker.rate`.

        Raises:
            Unavailable: Also where it rests.
        """
        if self.is_resting():
            raise Unavailable(f"The reranker '{self.name}' has failed several times and is left alone for a while.")
        if self._failures >= _FAILURES:
            self._rests_until = self._now() + self._rest  # for the others, while this one tries
        try:
            async with asyncio.timeout(self._timeout), self._turns:
                ratings = await self._reranker.rate(query, texts)
        except TimeoutError as error:
            failure = DeadlineExceeded(f"The reranker '{self.name}' did not answer within {self._timeout:g} s.")
            self._failed(failure)
            raise failure from error
        except CausewayError as error:
            self._failed(error)
            raise
        except Exception as error:
            failed = Unranked(f"The reranker '{self.name}' failed.")
            self._failed(failed)
            raise failed from error
        if self._failures >= _FAILURES:
            _log.info("the reranker is back", reranker=self.name)
        self._failures = 0
        return ratings

    async def aclose(self) -> None:
        """Closes it."""
        await self._reranker.aclose()

    def _failed(self, error: CausewayError) -> None:
        self._failures += 1
        if self._failures >= _FAILURES:
            self._rests_until = self._now() + self._rest
            _log.warning("the reranker is left alone", reranker=self.name, seconds=self._rest, error=error.message)

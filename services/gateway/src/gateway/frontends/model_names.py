"""Fetches the names of the models, because an assistant must not have the name of a model."""

import asyncio
from typing import Self

import structlog
from servicekit.background_task import BackgroundTask
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import LOCAL

from gateway.ports.answering import Generator

_log = structlog.get_logger(__name__)
_TIMEOUT_SECONDS = 5.0


class ModelNames(BackgroundTask):
    """Fetches the names of the models at the start and periodically. A failed call keeps the last names.

    Args:
        generator: The port that lists the models.
        interval: Seconds between two calls.
    """

    def __init__(self, generator: Generator, *, interval: float = 10.0) -> None:
        self._generator = generator
        self._interval = interval
        self._names: frozenset[str] = frozenset()

    def __call__(self) -> frozenset[str]:
        """Return the names; empty until the first successful call."""
        return self._names

    async def __aenter__(self) -> Self:
        """Fetch the names, and start to fetch them periodically."""
        await self._fetch()
        return await super().__aenter__()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._fetch()

    async def _fetch(self) -> None:
        try:
            models = await self._generator.models(LOCAL, Deadline.after(_TIMEOUT_SECONDS))
        except CausewayError as error:
            if not self._names:
                _log.warning(
                    "the generator did not list its models; the names of assistants are not compared with them",
                    error=error.message,
                )
            return
        self._names = frozenset(model.name for model in models)

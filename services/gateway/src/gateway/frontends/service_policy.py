"""Fetches the policy of the guardrails service, for profiles that use it."""

import asyncio

import structlog
from servicekit.background_task import BackgroundTask
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError

from gateway.domain import Policy
from gateway.ports.answering import Guardrails

_log = structlog.get_logger(__name__)
_TIMEOUT_SECONDS = 5.0


class ServicePolicy(BackgroundTask):
    """Fetches the policy periodically, beginning with its first use. A failed call keeps the last policy.

    Args:
        guardrails: The service.
        interval: Seconds between two calls.
    """

    def __init__(self, guardrails: Guardrails, *, interval: float = 1.0) -> None:
        self._guardrails = guardrails
        self._interval = interval
        self._needed = asyncio.Event()
        self._policy: Policy | None = None
        self._problem = ""

    def __call__(self) -> Policy | None:
        """Return the policy; None before the first successful call, and if the service has no policy."""
        self._needed.set()
        return self._policy

    async def _run(self) -> None:
        await self._needed.wait()
        while True:
            await self._fetch()
            await asyncio.sleep(self._interval)

    async def _fetch(self) -> None:
        try:
            policy = await self._guardrails.policy(Deadline.after(_TIMEOUT_SECONDS))
        except CausewayError as error:
            self._log_problem(error.message)
            return
        self._log_problem("" if policy else "The guardrails service has no policy file.")
        if policy != self._policy:
            self._policy = policy
            _log.info("guardrails policy changed", detectors=len(policy.detectors.output) if policy else 0)

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("the guardrails policy cannot be read", error=problem)
        self._problem = problem

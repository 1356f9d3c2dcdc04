"""Selects the deployment for each attempt of a request, and the error if all attempts fail."""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, RateLimited, Unavailable, UpstreamRejected

from generator.routing.deployment import Deployment, is_fault

_log = structlog.get_logger(__name__)
_TOO_MANY = 429
_MISCONFIGURED = (401, 403, 404)
"""Statuses of a server that does not accept the deployment's key or does not have its model."""
_FIRST_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """A deployment of a model, with its tier and weight."""

    deployment: Deployment
    weight: float = 1.0
    tier: int = 1


@dataclass(frozen=True, slots=True)
class Retries:
    """The limits on the retries of one request.

    Attributes:
        maximum: The maximum number of retries.
        within: The seconds since the start of the request within which a retry may begin.
    """

    maximum: int = 2
    within: float = 10.0


def least_busy(targets: Iterable[Target], rng: random.Random) -> Target | None:
    """Return the best target; None if there is no target.

    The criteria, in this order: the lowest tier, a free slot, the least load per weight. The choice among equal
    targets is random, in proportion to their weights.
    """
    ranked = [
        ((target.tier, not slots.free, (slots.busy + slots.waiting) / target.weight), target)
        for target in targets
        for slots in (target.deployment.slots,)
    ]
    if not ranked:
        return None
    best = min(rank for rank, _ in ranked)
    equal = [target for rank, target in ranked if rank == best]
    return equal[0] if len(equal) == 1 else rng.choices(equal, [target.weight for target in equal])[0]


class Attempts:
    """The attempts of one request: each deployment once, then retries within the limits.

    Args:
        name: The model's public name, for messages.
        targets: The deployments.
        retries: The limits on retries.
        deadline: The deadline of the request.
        rng: Selects among equally good targets, and adds jitter to the pauses.
    """

    def __init__(
        self, name: str, targets: Sequence[Target], retries: Retries, deadline: Deadline, rng: random.Random
    ) -> None:
        self._name = name
        self._targets = targets
        self._retries = retries
        self._deadline = deadline
        self._rng = rng
        self._began_at = time.monotonic()
        self._errors: dict[Deployment, CausewayError] = {}
        self._refused_by: set[Deployment] = set()
        self._last_error: CausewayError | None = None
        self._retry_count = 0

    def next(self) -> tuple[Deployment, float]:
        """Return the next deployment and the seconds to wait before the attempt.

        Raises:
            CausewayError: No deployment can be tried again; the error says why the request failed.
        """
        candidates = [
            target
            for target in self._targets
            if target.deployment.admits and target.deployment not in self._refused_by
        ]
        untried = least_busy((target for target in candidates if target.deployment not in self._errors), self._rng)
        if untried is not None:
            return untried.deployment, 0.0
        if self._retry_count < self._retries.maximum:
            repeated = least_busy(
                (target for target in candidates if _is_repeatable(self._errors[target.deployment])), self._rng
            )
            if repeated is not None:
                pause = self._pause(self._errors[repeated.deployment])
                is_late = time.monotonic() + pause - self._began_at > self._retries.within
                if not is_late and pause < self._deadline.remaining():
                    self._retry_count += 1
                    return repeated.deployment, pause
        raise self._final_error()

    def note_failure(self, deployment: Deployment, error: CausewayError, *, admitted: bool) -> bool:
        """Note a failure; return whether another attempt may succeed.

        Args:
            deployment: The deployment.
            error: The failure.
            admitted: Whether the attempt began. If not, the deployment was full, its circuit admitted no call, or
                the deadline passed in the queue.
        """
        if not admitted:
            self._refused_by.add(deployment)
            return not isinstance(error, DeadlineExceeded)
        if self._last_error is None or not _is_misconfigured(error):
            self._last_error = error
        self._errors[deployment] = error
        if not (is_fault(error) or _is_too_many(error) or _is_misconfigured(error)):
            return False
        _log.warning("deployment failed before its first token", deployment=deployment.name, error=error.message)
        return True

    def _pause(self, error: CausewayError) -> float:
        """Return the seconds to wait before the next retry, at least as many as the server requests."""
        maximum = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**self._retry_count)
        requested = error.retry_after if isinstance(error, UpstreamRejected) else None
        # Jitter spreads the retries of requests that failed at the same time.
        return self._rng.uniform(maximum / 2, maximum) + (requested or 0.0)

    def _final_error(self) -> CausewayError:
        """Return the error that the client of the failed request gets.

        If servers are too busy, it is their error with the shortest ``retry_after``; a missing one counts as 0.
        Otherwise it is the last failure of a deployment whose key and model are right. If only deployments with a
        wrong key or model failed, it is the first failure. If no attempt began, it is the reason why no deployment
        admits the request.
        """
        overloaded = [error for error in self._errors.values() if _is_too_many(error)]
        if overloaded:
            return min(overloaded, key=lambda error: error.retry_after or 0.0)
        if self._last_error is not None:
            return self._last_error
        # A full queue has priority over an open circuit, because its wait is shorter.
        full = [target.deployment.slots for target in self._targets if target.deployment.circuit.admits]
        if full:
            wait = min(slots.retry_after for slots in full)
            return RateLimited(
                f"The model '{self._name}' is busy; try again later.", resource=self._name, retry_after=wait
            )
        wait = max(1.0, min(target.deployment.circuit.retry_after for target in self._targets))
        return Unavailable(
            f"The model '{self._name}' cannot be reached; try again later.", resource=self._name, retry_after=wait
        )


def _is_too_many(error: CausewayError) -> bool:
    """Return whether the server is too busy; a Triton server reports this as `RateLimited`."""
    return isinstance(error, RateLimited) or (isinstance(error, UpstreamRejected) and error.status == _TOO_MANY)


def _is_misconfigured(error: CausewayError) -> bool:
    """Return whether the deployment cannot answer any request, although another deployment may answer this one."""
    return isinstance(error, UpstreamRejected) and error.status in _MISCONFIGURED


def _is_repeatable(error: CausewayError) -> bool:
    # A retry would double the load of a slow server. An overloaded server must not get another request.
    return is_fault(error) and not isinstance(error, DeadlineExceeded)

"""The ASGI middleware that measures, logs and records requests and the findings of detectors."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from servicekit import metrics
from servicekit.errors import Unavailable
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.profiles import Audit
from gateway.ports.records import Records
from gateway.server.accounting import Account
from gateway.server.prices import Prices
from gateway.server.request_state import RequestState, state_of

_log = structlog.get_logger(__name__)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

_requests = metrics.durations(
    __name__, "http.server.request.duration", "Seconds from a request to the end of its response."
)
_first = metrics.durations(
    __name__, "causeway.answer.first_token", "Seconds from the model call to the first token that clients get."
)
_steps = metrics.durations(__name__, "causeway.answer.step", "Seconds of each step of an answer.")
_tokens = metrics.counter(__name__, "causeway.tokens", "{token}", "Tokens of prompts (input) and answers (output).")
_cost = metrics.counter(__name__, "causeway.cost", "", "Cost of answers, in the currency of the prices.")
_detections = metrics.counter(__name__, "causeway.detections", "{detection}", "Findings of detectors, by verdict.")


class Recording:
    """Measures each request once, at its end, and writes its records and its log line.

    The layer is outside `Tracing`, which determines the status of a request. `Account` reads the request's state.

    Args:
        app: The inner application.
        records: Delivers the records.
        prices: Returns the current prices of tokens.
        unrecorded: Paths that are not recorded.
    """

    def __init__(
        self, app: ASGIApp, records: Records, prices: Callable[[], Prices], unrecorded: Sequence[str]
    ) -> None:
        self._app = app
        self._records = records
        self._prices = prices
        self._unrecorded = frozenset(unrecorded)
        # The number of values of each label is limited, because callers and remote servers choose the values.
        self._tenant, self._model, self._detector = (
            metrics.BoundedLabel(),
            metrics.BoundedLabel(),
            metrics.BoundedLabel(),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in self._unrecorded:
            await self._app(scope, receive, send)
            return
        state = state_of(scope)
        method, path = scope["method"], scope["path"]
        begin = time.perf_counter()
        try:
            await self._app(scope, receive, send)
        finally:
            route = str(scope.get("http.route") or getattr(scope.get("route"), "path", ""))
            account = Account(state, route, time.perf_counter() - begin)
            self._measure(method, account, state.dialect)
            # Only a POST request of an accepted caller has usage. The last attempt of a background response
            # records the usage of the response.
            if state.identified and method == "POST" and not state.recorded_later:
                self._write(account)
            _log.info("request", **log_line(account, method, path, state))

    def _measure(self, method: str, account: Account, dialect: str) -> None:
        labels = {
            "http.request.method": method if method in _METHODS else metrics.OTHER,
            "http.route": account.route,
            "http.response.status_code": str(account.status),
            "causeway.frontend": account.frontend.name,
            "causeway.dialect": dialect,
        }
        _requests.record(account.seconds, labels)

    def _write(self, account: Account) -> None:
        frontend = account.frontend
        prices = self._prices()  # read once, so that the record and the metric agree
        self._records.write(account.usage(prices))
        tenant = self._tenant.label_for(account.tenant)
        for step in account.steps:
            (_first if step.name == "first token" else _steps).record(
                step.duration_ms / 1000,
                {"causeway.frontend": frontend.name}
                if step.name == "first token"
                else {"causeway.step": step.name},
            )
        if account.input_tokens or account.output_tokens:
            labels = {"causeway.tenant": tenant, "gen_ai.request.model": self._model.label_for(account.model)}
            _tokens.add(account.input_tokens, {**labels, "gen_ai.token.type": "input"})
            _tokens.add(account.output_tokens, {**labels, "gen_ai.token.type": "output"})
            cost = account.cost(prices)
            if cost is not None:
                _cost.add(cost, {"causeway.tenant": tenant, "currency": prices.currency})
        for (direction, detector, verdict), count in account.verdicts().items():
            _detections.add(
                count,
                {
                    "causeway.detector": self._detector.label_for(detector),
                    "causeway.verdict": verdict,
                    "causeway.direction": direction.value,
                },
            )
        if frontend.audit is not Audit.OFF:
            for record in account.audit():
                self._records.write(record)


class AuditRequired:
    """Refuses POST requests of front ends that require audit records, while these cannot be stored.

    Args:
        app: The inner application.
        records: Delivers the records.
    """

    def __init__(self, app: ASGIApp, records: Records) -> None:
        self._app = app
        self._records = records

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            Unavailable: The front end requires audit records, and they cannot be stored.
        """
        if (
            scope["type"] == "http"
            and state_of(scope).frontend.audit is Audit.REQUIRED
            and scope["method"] == "POST"
            and not await self._records.reachable(state_of(scope).principal.tenant)
        ):
            raise Unavailable("The audit records cannot be stored at the moment. Try again shortly.", retry_after=5)
        await self._app(scope, receive, send)


def register_metrics(records: Records) -> None:
    """Register the metrics of waiting and dropped records."""
    metrics.observed(
        __name__, "causeway.records.waiting", "", "Records that wait to be sent.", lambda: [(records.waiting, {})]
    )
    metrics.observed_counter(
        __name__, "causeway.records.dropped", "", "Records dropped from a full queue.", lambda: records.dropped
    )


def log_line(account: Account, method: str, path: str, state: RequestState) -> dict[str, Any]:
    """Return the members of a request's log line (docs/observability.md).

    The line describes the request, its result and its usage, but contains no texts. Members without a value are
    omitted.

    Args:
        account: The request that has ended.
        method: The HTTP method.
        path: The requested path.
        state: The state of the request.
    """
    members = {
        "dialect": state.dialect,
        "user": "" if account.key else pseudonym(account.tenant, account.user),
        "model": account.model,
        "input_tokens": account.input_tokens,
        "output_tokens": account.output_tokens,
        "first_token_ms": next((step.duration_ms for step in account.steps if step.name == "first token"), None),
        "detections": _verdicts(account),
        "request_bytes": state.request_bytes,
        "nodes_kept": len(state.sources) if state.sources is not None else None,
    }
    return {
        "method": method,
        "path": path,
        "route": account.route,
        "status": account.status,
        "duration_ms": round(account.seconds * 1000, 1),
        # Added here, because the request's span has ended.
        "trace_id": account.trace_id,
        "tenant": account.tenant,
        **{name: value for name, value in members.items() if value},
        **state.log,
    }


def pseudonym(tenant: str, user: str) -> str:
    """Return 16 hex digits that identify a user without revealing the name. Empty without a user."""
    return hashlib.blake2b(f"{tenant}/{user}".encode(), digest_size=8).hexdigest() if user else ""


def _verdicts(account: Account) -> dict[str, int]:
    """Return the number of findings and failures of all detectors by verdict."""
    counts: Counter[str] = Counter()
    for (_direction, _detector, verdict), count in account.verdicts().items():
        counts[verdict] += count
    return dict(counts)

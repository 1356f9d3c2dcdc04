"""The ASGI middleware that enforces quotas. It runs after authentication, which identifies the caller."""

from servicekit.errors import CausewayError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.identity.caller import ANONYMOUS
from gateway.quotas.ledger import Ledger
from gateway.routing.route import QuotaUnit
from gateway.server.accounting import Account
from gateway.server.request_state import state_of


class QuotaLayer:
    """Refuses requests over a quota, and reports the remaining quota in ``x-ratelimit-…`` headers.

    Only ``POST`` requests count, as for usage records. The layer first counts an estimate. At the end of the
    request, it replaces the estimate by the actual usage.

    Args:
        app: The inner application.
        ledger: Counts the usage and decides whether a request is within the quotas.
    """

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            RateLimited: The request would exceed a quota.
        """
        if scope["type"] != "http" or scope["method"] != "POST" or (caller := state_of(scope).caller) is ANONYMOUS:
            await self._app(scope, receive, send)
            return
        route = state_of(scope).route
        unit = None if route is None else route.quota
        ingest = _length(scope) if unit is QuotaUnit.BYTES else None
        admitted = self._ledger.admit(caller, calls_model=unit is QuotaUnit.TOKENS, ingest=ingest)
        if admitted is None:
            await self._app(scope, receive, send)
            return
        headers = [(name.encode(), value.encode()) for name, value in admitted.headers.items()]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except CausewayError as error:
            error.details |= admitted.headers  # an outer layer sends them with the error
            raise
        finally:
            account = Account(state_of(scope), "", 0.0)
            admitted.end(account.input_tokens + account.output_tokens, account.ingested_bytes)


class AnswerCount:
    """Counts the tokens of a background answer. `QuotaLayer` has already counted the request.

    Args:
        app: The application that answers.
        ledger: Counts the usage.
    """

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one attempt. Count its tokens, unless a later attempt records the usage."""
        state = state_of(scope)
        try:
            await self._app(scope, receive, send)
        finally:
            if not state.recorded_later:
                account = Account(state, "", 0.0)
                self._ledger.count(state.caller, account.input_tokens + account.output_tokens)


def _length(scope: Scope) -> int:
    """Return the Content-Length of a request. 0 if the header is missing or invalid."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() and len(length) <= 18 else 0  # `BodyLimit` refuses invalid lengths

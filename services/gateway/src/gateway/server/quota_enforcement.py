"""The layer of quotas, as pure ASGI: inside of the identity, which says whose they are."""

from servicekit.errors import CausewayError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.identity.caller import NOBODY
from gateway.quotas.ledger import Ledger
from gateway.routing.route import QuotaUnit
from gateway.server.accounting import Account
from gateway.server.request_state import state_of


class QuotaLayer:
    """Refuses what is over a quota, and says in ``x-ratelimit-…`` headers what is left of it.

    What counts is what is recorded of usage: ``POST`` requests. What they used is known when they have ended.

    Args:
        app: What is below.
        ledger: Decides.
    """

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or (caller := state_of(scope).caller) is NOBODY:
            await self._app(scope, receive, send)
            return
        route = state_of(scope).route
        unit = None if route is None else route.quota
        ingest = _length(scope) if unit is QuotaUnit.BYTES else None
        admitted = self._ledger.admit(caller, model=unit is QuotaUnit.TOKENS, ingest=ingest)
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
            error.details |= admitted.headers  # the layer that answers is further out
            raise
        finally:
            account = Account(state_of(scope), "", 0.0)
            admitted.end(account.input_tokens + account.output_tokens, account.ingested_bytes)


class AnswerCount:
    """Counts the tokens of an answer in the background; its request was counted when it was accepted.

    Args:
        app: Answers.
        ledger: Counts.
    """

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one attempt to answer."""
        state = state_of(scope)
        try:
            await self._app(scope, receive, send)
        finally:
            if not state.recorded_later:
                account = Account(state, "", 0.0)
                self._ledger.count(state.caller, account.input_tokens + account.output_tokens)


def _length(scope: Scope) -> int:
    """The bytes that a request says to have; 0 where it does not say."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() and len(length) <= 18 else 0  # what is wrong is refused further in

"""The layers that say who asks, as pure ASGI: raw routes pass FastAPI's dependencies by."""

from typing import Protocol

from servicekit import api_keys
from servicekit.errors import CausewayError, NotFound, PermissionDenied, Unauthenticated
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends import FrontendsNow
from gateway.identity.access import Access, Role
from gateway.identity.caller import LOOPBACK, NOBODY, Caller, place
from gateway.identity.credentials import credential
from gateway.identity.key_ring import INVALID, KeyRing
from gateway.nothing_there import nothing_at
from gateway.profiles import frontend_of


class Identity:
    """Says who asks where nobody is asked who they are: it is always the same one, who may do everything.

    Args:
        app: What is below.
        caller: Who it is.
    """

    def __init__(self, app: ASGIApp, caller: Caller = LOOPBACK) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            place(scope, self._caller)
        await self._app(scope, receive, send)


class Tokens(Protocol):
    """Who tokens speak of: `tokens.Tokens`."""

    def known(self, token: str) -> Caller | None:
        """Who asks with a token that was verified before and has not ended; None: it is to be verified."""
        ...

    async def caller(self, token: str) -> Caller:
        """Who asks with a token.

        Raises:
            Unauthenticated: It is none, or not a good one.
            Unavailable: The issuer's keys are not known yet.
        """
        ...


class Authentication:
    """Finds out who asks, and refuses who may not: 401 without a good credential, 403 without the route's role, or
    on a front end that the credential is not for.

    Only then is a path that does not exist a 404, and a wrong method a 405: who is nobody learns of no path.

    Args:
        app: What is below.
        access: Which route takes which role.
        frontends: The profiles, which API keys may be bound to.
        keys: The API keys; None: none are taken.
        tokens: The tokens; None: none are taken.
    """

    def __init__(
        self, app: ASGIApp, access: Access, frontends: FrontendsNow, keys: KeyRing | None, tokens: Tokens | None
    ) -> None:
        self._app = app
        self._access = access
        self._frontends = frontends
        self._keys = keys
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        role, nothing_there = Role.ADMIN, None
        try:
            role = self._access.role(scope["path"], scope["method"])
        except NotFound:
            nothing_there = nothing_at(scope)
        except CausewayError as error:
            nothing_there = error
        if role is Role.OPEN:
            place(scope, NOBODY)
            return
        caller = await self._caller(credential(scope["headers"]))
        # Who is refused from here on is known, to the log and to whatever keeps records outside of this layer.
        place(scope, caller)
        if caller.key_id:
            scope["state"]["log"]["key"] = caller.key_id
        self._check_profile(scope, caller)
        if nothing_there is not None:
            raise nothing_there
        if not caller.principal.has_role(role):
            raise PermissionDenied(f"This takes the role '{role}', which the caller does not have.")

    async def _caller(self, said: str) -> Caller:
        if self._keys is not None and (self._tokens is None or said.startswith(api_keys.PREFIX)):
            return self._keys.caller(said)
        if self._tokens is None or said.startswith(api_keys.PREFIX):
            raise Unauthenticated("API keys are not taken here.", field="authorization", details=INVALID)
        # Most tokens have been seen before: nothing is awaited for these.
        return self._tokens.known(said) or await self._tokens.caller(said)

    def _check_profile(self, scope: Scope, caller: Caller) -> None:
        bound = caller.profiles | self._frontends().bound_to(caller.key_name)
        if bound and (name := frontend_of(scope).name) not in bound:
            raise PermissionDenied(f"The credential is not for the front end '{name}'.")

"""The layers that say who asks, as pure ASGI: raw routes pass FastAPI's dependencies by."""

from typing import Protocol

from servicekit import api_keys
from servicekit.errors import MethodNotAllowed, PermissionDenied, Unauthenticated
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.profiles import FrontendsNow
from gateway.identity.caller import LOOPBACK, NOBODY, Caller
from gateway.identity.credentials import credential
from gateway.identity.key_ring import INVALID, KeyRing
from gateway.routing.route import Role
from gateway.server.not_found import nothing_at
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import state_of


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
            state_of(scope).identify(self._caller)
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
        frontends: The profiles, which API keys may be bound to.
        keys: The API keys; None: none are taken.
        tokens: The tokens; None: none are taken.
        address: Says where clients find the gateway.
    """

    def __init__(
        self,
        app: ASGIApp,
        frontends: FrontendsNow,
        keys: KeyRing | None,
        tokens: Tokens | None,
        address: PublicAddress,
    ) -> None:
        self._app = app
        self._address = address
        self._frontends = frontends
        self._keys = keys
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        state = state_of(scope)
        if state.route is not None and state.route.role is Role.OPEN:
            state.identify(NOBODY)
            return
        resource = self._address.of(scope) + scope["path"] if state.route and state.route.is_resource else ""
        try:
            caller = await self._caller(credential(scope["headers"]))
            if caller.resources and resource not in caller.resources:
                raise Unauthenticated("The token is for another audience.", field="authorization", details=INVALID)
        except Unauthenticated as error:
            if resource and self._tokens is not None:
                error.details["resource_metadata"] = self._address.metadata(scope, resource)
            raise
        # Who is refused from here on is known, to the log and to whatever keeps records outside of this layer.
        state.identify(caller)
        if caller.key_id:
            state.log["key"] = caller.key_id
        self._check_profile(scope, caller)
        if state.route is None:
            wrong_method = isinstance(state.no_route, MethodNotAllowed)
            raise state.no_route if wrong_method and state.no_route else nothing_at(scope)
        if not caller.principal.has_role(role := state.route.role):
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
        if bound and (name := state_of(scope).frontend.name) not in bound:
            raise PermissionDenied(f"The credential is not for the front end '{name}'.")

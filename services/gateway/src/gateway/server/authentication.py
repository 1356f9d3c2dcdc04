"""The layers that identify the caller, as pure ASGI: FastAPI's dependencies do not see raw routes."""

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
    """Identifies every request with the same caller, who has all roles, if authentication is off.

    Args:
        app: The inner application.
        caller: The caller.
    """

    def __init__(self, app: ASGIApp, caller: Caller = LOOPBACK) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            state_of(scope).identify(self._caller)
        await self._app(scope, receive, send)


class Tokens(Protocol):
    """Verifies tokens: `tokens.Tokens`."""

    def known(self, token: str) -> Caller | None:
        """Return the caller of a token that was verified before and has not expired; None: it must be verified."""
        ...

    async def caller(self, token: str) -> Caller:
        """Return the caller of a token.

        Raises:
            Unauthenticated: The token is invalid.
            Unavailable: The issuer's keys are not known yet.
        """
        ...


class Authentication:
    """Identifies the caller; refuses a bad credential with 401, and a missing role or a wrong front end with 403.

    Only an identified caller learns whether a path exists (404) and whether it takes the method (405).

    Args:
        app: The inner application.
        frontends: The profiles, which API keys may be bound to.
        keys: The API keys; None: keys are not accepted.
        tokens: The tokens; None: tokens are not accepted.
        address: Returns the public address of the gateway.
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
        """Serve one request."""
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
        # From here on, the log and the records name the caller, even if the request is refused.
        state.identify(caller)
        if caller.key_id:
            state.log["key"] = caller.key_id
        self._check_profile(scope, caller)
        if state.route is None:
            wrong_method = isinstance(state.no_route, MethodNotAllowed)
            raise state.no_route if wrong_method and state.no_route else nothing_at(scope)
        if not caller.principal.has_role(role := state.route.role):
            raise PermissionDenied(f"This needs the role '{role}', which the caller does not have.")

    async def _caller(self, text: str) -> Caller:
        if self._keys is not None and (self._tokens is None or text.startswith(api_keys.PREFIX)):
            return self._keys.caller(text)
        if self._tokens is None or text.startswith(api_keys.PREFIX):
            raise Unauthenticated("API keys are not accepted here.", field="authorization", details=INVALID)
            # Most tokens are cached: they need no await.
        return self._tokens.known(text) or await self._tokens.caller(text)

    def _check_profile(self, scope: Scope, caller: Caller) -> None:
        bound = caller.profiles | self._frontends().bound_to(caller.key_name)
        if bound and (name := state_of(scope).frontend.name) not in bound:
            raise PermissionDenied(f"The credential is not valid for the front end '{name}'.")

"""The ASGI middleware that identifies the caller and checks its role."""

from typing import Protocol

from servicekit import api_keys
from servicekit.errors import MethodNotAllowed, PermissionDenied, Unauthenticated
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.snapshot import CurrentFrontends
from gateway.identity.caller import ANONYMOUS, LOOPBACK, Caller
from gateway.identity.credentials import credential_of
from gateway.identity.key_ring import INVALID, KeyRing
from gateway.routing.route import Role
from gateway.server.not_found import no_route_error
from gateway.server.public_address import PublicAddress
from gateway.server.request_state import state_of


class FixedCaller:
    """Gives every request the same caller, for a gateway without authentication.

    Args:
        app: The inner application.
        caller: The caller. The default caller has all roles.
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
    """Verifies tokens. See `identity.tokens.Tokens`."""

    def cached(self, token: str) -> Caller | None:
        """Return the caller of a cached token. None if the token is not cached or has expired."""
        ...

    async def caller(self, token: str) -> Caller:
        """Verify a token and return its caller.

        Raises:
            Unauthenticated: The token is invalid.
            Unavailable: The issuer's keys have not been loaded yet.
        """
        ...


class Authentication:
    """Identifies the caller.

    The layer refuses an invalid credential with 401. It refuses a caller with 403 if the caller lacks the role, or
    if the credential is not valid for the front end. Only identified callers learn whether a path exists (404) and
    whether it accepts the method (405).

    Args:
        app: The inner application.
        frontends: Returns the profiles. API keys may be bound to profiles.
        keys: The API keys; None: keys are not accepted.
        tokens: Verifies tokens; None: tokens are not accepted.
        address: Returns the public address of the gateway, which identifies protected resources.
    """

    def __init__(
        self,
        app: ASGIApp,
        frontends: CurrentFrontends,
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
        """Serve one request.

        Raises:
            Unauthenticated: The credential is missing or invalid.
            PermissionDenied: The caller lacks the role, or the credential is not valid for the front end.
            NotFound: No route has the path.
            MethodNotAllowed: The path does not accept the method.
            Unavailable: The keys that verify credentials have not been loaded yet.
        """
        if scope["type"] == "http":
            await self._admit(scope)
        await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> None:
        state = state_of(scope)
        if state.route is not None and state.route.role is Role.OPEN:
            state.identify(ANONYMOUS)
            return
        resource = self._address.front_end(scope) + scope["path"] if state.route and state.route.is_resource else ""
        try:
            caller = await self._caller(credential_of(scope["headers"]))
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
            raise state.no_route if wrong_method and state.no_route else no_route_error(scope)
        if not caller.principal.has_role(role := state.route.role):
            raise PermissionDenied(f"The caller needs the role '{role}' for this request.")

    async def _caller(self, credential: str) -> Caller:
        if self._keys is not None and (self._tokens is None or credential.startswith(api_keys.PREFIX)):
            return self._keys.caller(credential)
        if self._tokens is None or credential.startswith(api_keys.PREFIX):
            raise Unauthenticated("This gateway does not accept API keys.", field="authorization", details=INVALID)
        # Most tokens are cached, which saves an await.
        return self._tokens.cached(credential) or await self._tokens.caller(credential)

    def _check_profile(self, scope: Scope, caller: Caller) -> None:
        allowed_profiles = caller.profiles | self._frontends().profiles_of_key(caller.key_name)
        if allowed_profiles and (name := state_of(scope).frontend.name) not in allowed_profiles:
            raise PermissionDenied(f"The credential is not valid for the front end '{name}'.")

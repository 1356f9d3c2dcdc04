"""The ASGI middleware for signed links. A signature replaces the credential for one document."""

from urllib.parse import parse_qsl, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.snapshot import CurrentFrontends
from gateway.identity.caller import Caller
from gateway.identity.key_ring import KeyRing
from gateway.identity.link_signing import PARAMETER, LinkedDocument, LinkKeys, invalid_link_error
from gateway.server.request_state import state_of

_DOCUMENTS = "/content/"
_METHODS = ("GET", "HEAD")


class SignedLinks:
    """Admits a request with a valid signature, on behalf of the caller in the link and only for its document.

    The request belongs to the front end whose answer contained the link, at any host. This layer removes the
    signature from the query.

    Args:
        app: The application without authentication, for requests with a valid signature.
        authenticated: The same application with authentication around it, for requests without a signature.
        keys: The keys that verify signatures.
        frontends: Returns the profiles.
        api_keys: The valid API keys; None: keys are not accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticated: ASGIApp,
        keys: LinkKeys,
        frontends: CurrentFrontends,
        api_keys: KeyRing | None,
    ) -> None:
        self._app = app
        self._authenticated = authenticated
        self._keys = keys
        self._frontends = frontends
        self._api_keys = api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            PermissionDenied: The signature is invalid or has expired, or its front end or API key is not valid now.
            Unavailable: The gateway does not have the key of the signature yet.
        """
        signature = None
        if scope["type"] == "http" and scope["path"].startswith(_DOCUMENTS) and scope["method"] in _METHODS:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            signature = next((value for name, value in query if name == PARAMETER), None)
        if signature is None:
            await self._authenticated(scope, receive, send)
            return

        linked = self._keys.verify(signature)
        remaining = [(name, value) for name, value in query if name != PARAMETER]
        scope["query_string"] = urlencode(remaining).encode()
        state = state_of(scope)
        frontend = self._frontends().named(linked.profile)
        if frontend is None:
            raise invalid_link_error()
        state.frontend = frontend
        state.log["frontend"] = frontend.name
        state.linked = linked
        state.identify(self._caller(linked))
        await self._app(scope, receive, send)

    def _caller(self, linked: LinkedDocument) -> Caller:
        """Return the caller of a link: the current API key, or the user with the ids that open the document.

        Raises:
            PermissionDenied: The key was revoked, has lost the role ``ask``, or is not valid for this front end.
        """
        if not linked.api_key:
            return Caller(linked.principal)
        caller = self._api_keys.caller_of_id(linked.api_key) if self._api_keys is not None else None
        if caller is None or caller.principal.tenant != linked.tenant or not caller.principal.has_role("ask"):
            raise invalid_link_error()
        allowed_profiles = caller.profiles | self._frontends().profiles_of_key(caller.key_name)
        if allowed_profiles and linked.profile not in allowed_profiles:
            raise invalid_link_error()
        return caller

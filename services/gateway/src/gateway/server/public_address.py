"""Determines the public address of the gateway, for links and metadata."""

from starlette.requests import HTTPConnection
from starlette.types import Scope

from gateway.server.request_state import state_of

METADATA = "/.well-known/oauth-protected-resource"
"""Path of the metadata of protected resources."""


class PublicAddress:
    """Returns the public addresses of the gateway and of its front ends.

    Args:
        url: The public address of the gateway, without a trailing slash. Empty: the request's host is used.
        path: The path prefix under which a proxy serves the gateway, if ``url`` is empty. Empty: the root.
    """

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._path = path

    def root(self, scope: Scope) -> str:
        """Return the address of the gateway, without a trailing slash."""
        if self._url:
            return self._url
        headers = HTTPConnection(scope).headers
        return f"{scope['scheme']}://{headers.get('host', 'localhost')}{self._path}"

    def metadata(self, scope: Scope, resource: str) -> str:
        """Return the address of a protected resource's metadata (RFC 9728, 3.1)."""
        root = self.root(scope)
        return f"{root}{METADATA}{resource.removeprefix(root)}"

    def front_end(self, scope: Scope) -> str:
        """Return the address of the front end of a request, without a trailing slash."""
        mount = state_of(scope).frontend.mount
        return f"{self.root(scope)}/{mount}" if mount else self.root(scope)

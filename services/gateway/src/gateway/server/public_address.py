"""Where clients find the gateway: the beginning of the addresses that it tells them."""

from starlette.requests import HTTPConnection
from starlette.types import Scope

from gateway.server.request_state import state_of

METADATA = "/.well-known/oauth-protected-resource"
"""Path of the metadata of protected resources."""


class PublicAddress:
    """Says the address of a request's front end.

    Args:
        url: Where clients find the gateway, without a slash at its end; empty: by the host that they name.
        path: Path below which a proxy offers it, where ``url`` is empty.
    """

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._path = path

    def root(self, scope: Scope) -> str:
        """The address of the gateway, without a slash at its end."""
        if self._url:
            return self._url
        headers = HTTPConnection(scope).headers
        return f"{scope['scheme']}://{headers.get('host', 'localhost')}{self._path}"

    def metadata(self, scope: Scope, resource: str) -> str:
        """The address of a protected resource's metadata (RFC 9728, 3.1)."""
        root = self.root(scope)
        return f"{root}{METADATA}{resource.removeprefix(root)}"

    def of(self, scope: Scope) -> str:
        """The address of the front end that a request belongs to, without a slash at its end."""
        mount = state_of(scope).frontend.mount
        return f"{self.root(scope)}/{mount}" if mount else self.root(scope)

"""The ASGI middleware that protects a gateway without authentication from web pages.

Every page in a browser on this machine can send requests to loopback addresses. By DNS rebinding, the host name of
a page can become a loopback address. Sources: the Fetch standard, Fetch Metadata Request Headers (W3C), RFC 6761.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from servicekit.errors import PermissionDenied
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.snapshot import CurrentFrontends
from gateway.routing.route import Role
from gateway.server.request_state import state_of

_OTHER_SITES = (b"cross-site", b"same-site")  # same-site includes other ports of the same host


class WebPages:
    """Refuses requests for other hosts (the header ``Host``), and requests from pages of other origins.

    The gateway's hosts are loopback addresses, the hosts of profiles, and the allowed hosts. Pages of the origins
    that the profile allows may send requests. A user may follow a link on any page. Routes that never need
    credentials, such as health, accept every request.

    Args:
        app: The inner application.
        frontends: Returns the profiles.
        hosts: Further allowed hosts, in lower case, with or without a port.
    """

    def __init__(self, app: ASGIApp, frontends: CurrentFrontends, hosts: Collection[str]) -> None:
        self._app = app
        self._frontends = frontends
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            PermissionDenied: The gateway does not have this host, or a page of another origin sent the request.
        """
        if scope["type"] == "http":
            route = state_of(scope).route
            if route is None or route.role is not Role.OPEN:
                self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # A browser always sends a host.
        if host and not self._is_own(host):
            raise PermissionDenied(
                f"The host {host[:200]!r} does not belong to this gateway. Add it to CAUSEWAY_ALLOWED_HOSTS, or to "
                "the hosts of a front end profile.",
                field="host",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin:
            foreign = urlsplit(origin).netloc.lower() != host if "://" in origin else True
        else:
            foreign = headers.get(b"sec-fetch-site") in _OTHER_SITES and not _is_link(scope, headers)
        if foreign and not state_of(scope).frontend.allows_origin(origin):
            raise PermissionDenied(
                "Pages of another origin may not call this front end. Add the origin to the profile's `origins`.",
                field="origin",
            )

    def _is_own(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname if host.count("[") == host.count("]") else None
        if name is None:
            return False
        name = name.removesuffix(".")
        return _is_loopback(name) or host in self._hosts or name in self._hosts or self._frontends().has_host(host)


def _is_link(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether the user follows a link. The page with the link cannot read the response."""
    return scope["method"] in ("GET", "HEAD") and headers.get(b"sec-fetch-dest") == b"document"


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")

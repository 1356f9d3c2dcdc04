"""The origins that a page calls to sign a user in at an OpenID Connect provider.

Source: OpenID Connect Discovery 1.0, 3 and 4.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog

from gateway.identity.settings import is_safe

_log = structlog.get_logger(__name__)
_LIFETIME = 600.0
_PAUSE = 10.0
_SECONDS = 3.0

Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches the body at an address; raises `OSError` on failure."""


class ProviderOrigins:
    """The issuer's own origin, and that of the token endpoint, which the provider's configuration names.

    The configuration is read when a page is requested, and cached for ten minutes. While the provider does not
    answer, the page uses the last known origins.

    Args:
        issuer: The provider.
        fetch: Fetches its configuration.
        clock: Returns seconds.
    """

    def __init__(self, issuer: str, fetch: Fetch, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._origins: tuple[str, ...] = (_origin(issuer),)
        self._until = -_LIFETIME
        self._turn = asyncio.Lock()

    async def __call__(self) -> tuple[str, ...]:
        """Return the origins, without duplicates."""
        if self._clock() >= self._until:
            async with self._turn:
                if self._clock() >= self._until:
                    await self._read()
        return self._origins

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                found = json.loads(
                    await self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
                )
            endpoint = found["token_endpoint"] if found["issuer"] == self._issuer else ""
            if not isinstance(endpoint, str) or not is_safe(endpoint):
                raise ValueError("its configuration names another issuer, or no https token endpoint")
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning(
                "the identity provider's token endpoint is not known", issuer=self._issuer, error=str(error)
            )
            self._until = self._clock() + _PAUSE
        else:
            self._origins = tuple(dict.fromkeys((_origin(self._issuer), _origin(endpoint))))
            self._until = self._clock() + _LIFETIME


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"

"""Determines the origins that a web page calls when a user signs in at an OpenID Connect provider."""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import structlog

from gateway.identity.provider_configuration import Fetch, provider_url

_log = structlog.get_logger(__name__)
_LIFETIME_SECONDS = 600.0
_RETRY_SECONDS = 10.0
_TIMEOUT_SECONDS = 3.0


class ProviderOrigins:
    """The origins of the issuer and of its token endpoint, which the provider's configuration names.

    A request for a page fetches the configuration, and the result is cached for ten minutes. While the provider
    does not respond, the page uses the last known origins.

    Args:
        issuer: The URL of the provider.
        fetch: Fetches its configuration.
        clock: Returns seconds.
    """

    def __init__(self, issuer: str, fetch: Fetch, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._origins: tuple[str, ...] = (_origin(issuer),)
        self._valid_until = -_LIFETIME_SECONDS
        self._lock = asyncio.Lock()

    async def __call__(self) -> tuple[str, ...]:
        """Return the origins, without duplicates."""
        if self._clock() >= self._valid_until:
            async with self._lock:
                if self._clock() >= self._valid_until:
                    await self._refresh()
        return self._origins

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                endpoint = await provider_url(self._issuer, self._fetch, "token_endpoint")
        except (OSError, ValueError) as error:
            _log.warning(
                "the identity provider's configuration cannot be read",
                issuer=self._issuer,
                error=str(error) or type(error).__name__,
            )
            self._valid_until = self._clock() + _RETRY_SECONDS
        else:
            self._origins = tuple(dict.fromkeys((_origin(self._issuer), _origin(endpoint))))
            self._valid_until = self._clock() + _LIFETIME_SECONDS


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"

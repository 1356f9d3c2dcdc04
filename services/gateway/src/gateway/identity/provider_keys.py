"""Fetches, caches and refreshes the signing keys of an OpenID Connect provider.

Source: JSON Web Key (RFC 7517), 5.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWKError, PyJWTError
from servicekit.errors import Unauthenticated, Unavailable
from servicekit.tasks import cancel_and_wait

from gateway.identity.key_ring import INVALID
from gateway.identity.provider_configuration import Fetch, json_object, provider_url

_log = structlog.get_logger(__name__)
_LIFETIME_SECONDS = 600.0
_MIN_INTERVAL_SECONDS = 5.0

Keys = Mapping[str, PyJWK]


class ProviderKeys:
    """The provider's signing keys by their ids.

    The first token to verify after ten minutes starts a refresh in the background. A request whose token names an
    unknown key waits for a refresh. A minimum interval between two refreshes protects the provider against tokens
    with random key ids. If the provider fails or sends invalid data, the previous keys remain valid.

    Args:
        issuer: The URL of the provider.
        fetch: Fetches a document.
        algorithms: The allowed algorithms of its keys.
        jwks_url: The address of the keys; empty: the provider's configuration contains the address.
        timeout: The time limit of a refresh in seconds. Requests with an unknown key wait for the refresh.
        clock: Returns seconds.

    Attributes:
        on_change: Called when a key was removed or changed.
    """

    def __init__(
        self,
        issuer: str,
        fetch: Fetch,
        algorithms: Collection[str],
        *,
        jwks_url: str = "",
        timeout: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._algorithms = algorithms
        self._jwks_url = jwks_url
        self.on_change: Callable[[], None] = lambda: None
        self._timeout = timeout
        self._clock = clock
        self._keys: Keys = {}
        self._raw: dict[str, Any] = {}
        self._loaded_at = self._tried_at = -_LIFETIME_SECONDS
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> PyJWK:
        """Return the key that a token names, or the only key if the token names none.

        Raises:
            Unauthenticated: The provider has no such key, or the token names no key and the provider has several.
            Unavailable: The keys were not fetched yet.
        """
        now = self._clock()
        key = self._cached(key_id)
        due = now - self._tried_at >= _MIN_INTERVAL_SECONDS
        if key is None and (due or self._refreshing is not None):
            await asyncio.shield(self._start_refresh())
            key = self._cached(key_id)
        elif now - self._loaded_at >= _LIFETIME_SECONDS and due:
            self._start_refresh()
        if key is not None:
            return key
        if not self._keys:
            raise Unavailable(
                "The gateway cannot verify tokens: the identity provider does not respond.",
                retry_after=_MIN_INTERVAL_SECONDS,
            )
        raise Unauthenticated(
            "The token is signed with a key that its issuer does not have.", field="authorization", details=INVALID
        )

    async def close(self) -> None:
        """Stop the background refresh."""
        if self._refreshing is not None:
            await cancel_and_wait(self._refreshing)

    def _cached(self, key_id: str | None) -> PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None:
            self._tried_at = self._clock()
            self._refreshing = asyncio.create_task(self._refresh())
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                url = self._jwks_url or await provider_url(self._issuer, self._fetch, "jwks_uri")
                raw = _by_id(json_object(await self._fetch(url)))
            keys = {name: key for name, jwk in raw.items() if (key := self._key(jwk)) is not None}
            if not keys:
                raise ValueError("the key set has no key for the allowed algorithms")
        except (OSError, ValueError, PyJWTError) as error:
            _log.warning(
                "the identity provider's keys cannot be fetched; the previous keys stay valid",
                issuer=self._issuer,
                error=str(error) or type(error).__name__,
            )
        else:
            removed = any(raw.get(name) != jwk for name, jwk in self._raw.items())
            self._keys, self._raw, self._loaded_at = keys, raw, self._clock()
            if removed:
                self.on_change()
        finally:
            self._refreshing = None

    def _key(self, jwk: Mapping[str, Any]) -> PyJWK | None:
        if jwk.get("use", "sig") != "sig":
            return None
        try:
            key = PyJWK(dict(jwk))
        except PyJWKError:
            return None  # an unknown type of key
        if key.algorithm_name not in self._algorithms or key.Algorithm.check_key_length(key.key):
            return None  # PyJWT refuses RSA keys below 2048 bits
        return key


def _by_id(document: Mapping[str, Any]) -> dict[str, Any]:
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("the key set has no list of keys")  # noqa: TRY004  # the value is content, not an argument
    return {str(jwk.get("kid", "")): jwk for jwk in listed if isinstance(jwk, dict)}

"""The signing keys of an OpenID Connect provider: fetched, cached, and refreshed when the provider changes them.

Sources: OpenID Connect Discovery 1.0, 4; JSON Web Key (RFC 7517), 5.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWKError, PyJWTError
from servicekit.errors import Unauthenticated, Unavailable
from servicekit.tasks import ended

from gateway.identity.key_ring import INVALID
from gateway.identity.settings import is_safe

_log = structlog.get_logger(__name__)
_LIFETIME = 600.0
_PAUSE = 5.0

Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches the body at an address; raises `OSError` on failure."""

Keys = Mapping[str, PyJWK]


class ProviderKeys:
    """The provider's signing keys by their ids.

    They are refreshed in the background after ten minutes, and immediately when a token names an unknown key. A
    minimum interval between two fetches keeps invented key ids from overloading the provider. If the provider fails
    or sends invalid data, the previous keys stay valid.

    Args:
        issuer: The provider.
        fetch: Fetches a document.
        algorithms: The allowed algorithms of its keys.
        jwks_url: The address of the keys; empty: from the provider's configuration.
        patience: The time limit of a refresh, in seconds: requests with an unknown key wait for it.
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
        patience: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._algorithms = algorithms
        self._jwks_url = jwks_url
        self.on_change: Callable[[], None] = lambda: None
        self._patience = patience
        self._clock = clock
        self._keys: Keys = {}
        self._raw: dict[str, Any] = {}
        self._loaded_at = self._tried_at = -_LIFETIME
        self._loading: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> PyJWK:
        """Return the key that a token names, or the only key if the token names none.

        Raises:
            Unauthenticated: The provider has no such key.
            Unavailable: Its keys are not known yet.
        """
        now = self._clock()
        key = self._named(key_id)
        due = now - self._tried_at >= _PAUSE
        if key is None and (due or self._loading is not None):
            await asyncio.shield(self._load())
            key = self._named(key_id)
        elif now - self._loaded_at >= _LIFETIME and due:
            self._load()
        if key is not None:
            return key
        if not self._keys:
            raise Unavailable(
                "Tokens cannot be checked: the identity provider does not answer.", retry_after=_PAUSE
            )
        raise Unauthenticated(
            "The token is signed with a key that its issuer does not have.", field="authorization", details=INVALID
        )

    async def close(self) -> None:
        """Stop the background refresh."""
        if self._loading is not None:
            await ended(self._loading)

    def _named(self, key_id: str | None) -> PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _load(self) -> asyncio.Task[None]:
        if self._loading is None:
            self._tried_at = self._clock()
            self._loading = asyncio.create_task(self._loaded())
        return self._loading

    async def _loaded(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                url = self._jwks_url or await self._discovered()
                raw = _by_id(_object(await self._fetch(url)))
            keys = {name: key for name, jwk in raw.items() if (key := self._key(jwk)) is not None}
            if not keys:
                raise ValueError("it lists no key for the allowed algorithms")
        except (OSError, ValueError, PyJWTError) as error:
            _log.warning(
                "the identity provider's keys cannot be fetched; the previous keys stay valid",
                issuer=self._issuer,
                error=str(error) or type(error).__name__,
            )
        else:
            gone = any(raw.get(name) != jwk for name, jwk in self._raw.items())
            self._keys, self._raw, self._loaded_at = keys, raw, self._clock()
            if gone:
                self.on_change()
        finally:
            self._loading = None

    async def _discovered(self) -> str:
        found = _object(await self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"))
        if found.get("issuer") != self._issuer:
            raise ValueError("its configuration names another issuer")
        url = found.get("jwks_uri")
        if not isinstance(url, str) or not is_safe(url):
            raise ValueError("its configuration names no https address of its keys")
        return url

    def _key(self, jwk: Mapping[str, Any]) -> PyJWK | None:
        if jwk.get("use", "sig") != "sig":
            return None
        try:
            key = PyJWK(dict(jwk))
        except PyJWKError:
            return None  # an unknown kind of key
        if key.algorithm_name not in self._algorithms or key.Algorithm.check_key_length(key.key):
            return None  # PyJWT refuses the length: RSA below 2048 bits
        return key


def _object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("it answers with JSON that is not an object")  # noqa: TRY004  # of content, not of an argument
    return found


def _by_id(document: Mapping[str, Any]) -> dict[str, Any]:
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("its key set has no keys")  # noqa: TRY004  # likewise
    return {str(jwk.get("kid", "")): jwk for jwk in listed if isinstance(jwk, dict)}

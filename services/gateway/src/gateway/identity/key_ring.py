"""The API keys, in memory: a request's key costs one look-up and one hash."""

import time
from collections.abc import Callable, Iterable

from servicekit import api_keys
from servicekit.api_keys import ApiKey
from servicekit.errors import Unauthenticated, Unavailable

from gateway.identity.caller import Caller, with_own


class KeyRing:
    """The valid API keys; `clients.key_watch` fills it from their store.

    While the store is not available, the known keys stay valid, and revocations have no effect.

    Args:
        now: Returns seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[str, tuple[ApiKey, Caller]] = {}
        self._filled = False

    @property
    def filled(self) -> bool:
        """Return whether the keys are known."""
        return self._filled

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Replace all keys."""
        self._keys = {key.id: (key, _caller(key)) for key in keys}
        self._filled = True

    def put(self, key: ApiKey) -> None:
        """Add or update a key."""
        self._keys[key.id] = key, _caller(key)

    def remove(self, key_id: str) -> None:
        """Remove a revoked key."""
        self._keys.pop(key_id, None)

    def known(self, key_id: str) -> Caller | None:
        """Return the caller of the valid key with this id, or None. Signed links name a key by its id."""
        record, caller = self._keys.get(key_id, (None, None))
        return None if record is None or record.expired(self._now()) else caller

    def caller(self, key: str) -> Caller:
        """Return the caller of a key.

        Raises:
            Unauthenticated: The key does not exist, or has expired.
            Unavailable: The keys are not known yet.
        """
        if not self._filled:
            raise Unavailable("API keys cannot be checked yet. Try again shortly.", retry_after=2)
        record, caller = self._keys.get(api_keys.id_of(key) or "", (None, None))
        if record is None or caller is None:
            api_keys.compare_with_nothing(key)
            raise _wrong()
        if not record.matches(key):
            raise _wrong()
        if record.expired(self._now()):
            raise Unauthenticated("The API key has expired.", field="authorization", details=INVALID)
        return caller


INVALID = {"challenge": "invalid_token"}
"""Detail of an error: the request has an invalid credential (RFC 6750, 3.1)."""


def _caller(key: ApiKey) -> Caller:
    return Caller(with_own(key.principal()), key.id, key.name, frozenset(key.profiles), key.expires_at)


def _wrong() -> Unauthenticated:
    # The same message for a revoked key and for one that never existed.
    return Unauthenticated("The API key does not exist.", field="authorization", details=INVALID)

"""Keeps the API keys in memory and checks the keys of requests. A check needs one look-up and one hash."""

import time
from collections.abc import Callable, Iterable

from servicekit import api_keys
from servicekit.api_keys import ApiKey
from servicekit.errors import Unauthenticated, Unavailable

from gateway.identity.caller import Caller, with_own_oids


class KeyRing:
    """The API keys by their ids. `clients.key_watch` loads them from their store.

    While the store is unavailable, the loaded keys remain valid, and revocations have no effect.

    Args:
        now: Returns seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[str, tuple[ApiKey, Caller]] = {}
        self._loaded = False

    @property
    def loaded(self) -> bool:
        """Return whether the keys were loaded."""
        return self._loaded

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Replace all keys."""
        self._keys = {key.id: (key, _caller(key)) for key in keys}
        self._loaded = True

    def put(self, key: ApiKey) -> None:
        """Add or update a key."""
        self._keys[key.id] = key, _caller(key)

    def remove(self, key_id: str) -> None:
        """Remove a revoked key."""
        self._keys.pop(key_id, None)

    def caller_of_id(self, key_id: str) -> Caller | None:
        """Return the caller of the key with this id; None if the key does not exist or has expired.

        Signed links contain the id of a key.
        """
        record, caller = self._keys.get(key_id, (None, None))
        return None if record is None or record.expired(self._now()) else caller

    def caller(self, key: str) -> Caller:
        """Return the caller of a key.

        Raises:
            Unauthenticated: The key does not exist, or has expired.
            Unavailable: The keys were not loaded yet.
        """
        if not self._loaded:
            raise Unavailable(
                "The gateway has not loaded the API keys yet. Try again in a few seconds.", retry_after=2
            )
        record, caller = self._keys.get(api_keys.id_of(key) or "", (None, None))
        if record is None or caller is None:
            api_keys.compare_with_dummy(key)
            raise _unknown_key()
        if not record.matches(key):
            raise _unknown_key()
        if record.expired(self._now()):
            raise Unauthenticated("The API key has expired.", field="authorization", details=INVALID)
        return caller


INVALID = {"challenge": "invalid_token"}
"""The detail of an error for a request with an invalid credential (RFC 6750, section 3.1)."""


def _caller(key: ApiKey) -> Caller:
    return Caller(with_own_oids(key.principal()), key.id, key.name, frozenset(key.profiles), key.expires_at)


def _unknown_key() -> Unauthenticated:
    # A revoked key and a key that never existed get the same message.
    return Unauthenticated("The API key does not exist.", field="authorization", details=INVALID)

"""The API keys, in memory: what a request's key costs is a look-up and one hash."""

import time
from collections.abc import Callable, Iterable

from servicekit import api_keys
from servicekit.api_keys import ApiKey
from servicekit.errors import Unauthenticated, Unavailable

from gateway.identity.caller import Caller, with_own


class KeyRing:
    """The keys that are good now. Whoever watches where they are stored fills it (`clients.key_watch`).

    Once filled it stays as it is while its store is away: keys go on working, a revocation waits.

    Args:
        now: Seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[str, tuple[ApiKey, Caller]] = {}
        self._filled = False

    @property
    def filled(self) -> bool:
        """Whether the keys are known."""
        return self._filled

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """These are the keys, and no others."""
        self._keys = {key.id: (key, _caller(key)) for key in keys}
        self._filled = True

    def put(self, key: ApiKey) -> None:
        """Adds a key, or what is new of it."""
        self._keys[key.id] = key, _caller(key)

    def remove(self, key_id: str) -> None:
        """Forgets a key: it was revoked."""
        self._keys.pop(key_id, None)

    def known(self, key_id: str) -> Caller | None:
        """Who asks with the key of this id, as long as it is good: for what was made for a caller with it."""
        record, caller = self._keys.get(key_id, (None, None))
        return None if record is None or record.expired(self._now()) else caller

    def caller(self, key: str) -> Caller:
        """Who asks with a key.

        Raises:
            Unauthenticated: There is no such key, or its time is over.
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
"""Detail of an error: a credential came, and is not good (RFC 6750, 3.1)."""


def _caller(key: ApiKey) -> Caller:
    return Caller(with_own(key.principal()), key.id, key.name, frozenset(key.profiles), key.expires_at)


def _wrong() -> Unauthenticated:
    # Whether it was revoked or never was is the same to who asks.
    return Unauthenticated("There is no such API key.", field="authorization", details=INVALID)

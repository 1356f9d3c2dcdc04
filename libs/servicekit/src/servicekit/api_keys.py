"""API keys: their records, their creation and their comparison.

A key is ``cwk_<id>_<secret>``. The id, 16 hex digits, identifies the record and is not secret. The secret is 256
random bits in base64url. Only the key's SHA-256 is stored. A slow password hash is not needed, because 256 random
bits cannot be guessed. A slow hash would also delay every request.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import asdict, dataclass, fields

from servicekit import keys
from servicekit.errors import InvalidRequest
from servicekit.principal import ROLES, Principal

PREFIX = "cwk_"
"""The prefix of every key, which distinguishes it from a token and helps to find leaked keys."""

_KEY = re.compile(PREFIX + r"([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_DUMMY_DIGEST = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of a key.

    Attributes:
        id: Identifies the key; may be shown and logged.
        digest: SHA-256 of the whole key, in hex.
        name: The name that users see. ``keys`` of a front end profile lists such names. A key and its replacement
            may have the same name.
        tenant: The tenant whose documents the key gives access to.
        user: The user whom the key represents. History and uploads belong to this user.
        oids: The ids of the user that are compared with documents' access lists, together with ``groups``.
        roles: A subset of `principal.ROLES`.
        profiles: Front end profiles that accept the key; empty: all profiles.
        created_at: Seconds since 1970.
        expires_at: Seconds since 1970; None: never.
    """

    id: str
    digest: str
    name: str
    tenant: str
    user: str
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    created_at: float = 0.0
    expires_at: float | None = None

    def expired(self, now: float) -> bool:
        """Return whether the key has expired; ``now`` is in seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at

    def matches(self, key: str) -> bool:
        """Return whether the record belongs to a key, in constant time."""
        return hmac.compare_digest(_digest(key), self.digest)

    def principal(self) -> Principal:
        """Return the principal of the key. Without ``oids``, the user's name is its only id for access lists."""
        return Principal(self.tenant, self.user, self.oids or (self.user,), self.groups, self.roles)

    def to_json(self) -> bytes:
        """Return the record in its stored form."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> "ApiKey":
        """Return a stored record; members that a newer version has added are ignored.

        Raises:
            ValueError: ``raw`` is not a valid record.
        """
        try:
            members = dict(json.loads(raw))
            known = {field.name: members[field.name] for field in fields(cls) if field.name in members}
            lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
            key = cls(**known | lists)
            listed = (*key.oids, *key.groups, *key.profiles, *key.roles)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a record of an API key: {type(error).__name__}") from None
        texts = (key.id, key.digest, key.name, key.tenant, key.user, *listed)
        times = (key.created_at, 0 if key.expires_at is None else key.expires_at)
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(isinstance(seconds, int | float) for seconds in times)
            or not key.tenant
            or not key.digest.isascii()
            or keys.is_issued(key.user)
            or not set(key.roles) <= set(ROLES)
        ):
            raise ValueError("not a record of an API key: a member is invalid, or the user belongs to an issuer")
        return key


def create(
    name: str,
    tenant: str,
    *,
    user: str = "",
    oids: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    roles: tuple[str, ...] = (),
    profiles: tuple[str, ...] = (),
    expires_at: float | None = None,
) -> tuple[str, ApiKey]:
    """Return a new key and its record; the key itself is not stored.

    Without a user, the key's name is the user, so that two keys do not share history and uploads by accident.

    Raises:
        InvalidRequest: The user has a prefix that belongs to an identity provider.
    """
    if keys.is_issued(user or name):
        raise InvalidRequest(
            f"A key cannot have the user '{user or name}': names with this prefix belong to an identity provider.",
            field="user",
        )
    identity = secrets.token_hex(8)
    key = f"{PREFIX}{identity}_{secrets.token_urlsafe(32)}"
    record = ApiKey(
        identity, _digest(key), name, tenant, user or name, oids, groups, roles, profiles, time.time(), expires_at
    )
    return key, record


def id_of(key: str) -> str | None:
    """Return the id of the record that a key belongs to, or None if it is not a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def compare_with_dummy(key: str) -> None:
    """Take the same time as `ApiKey.matches`, so that the time does not reveal whether an id has a record."""
    hmac.compare_digest(_digest(key), _DUMMY_DIGEST)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()

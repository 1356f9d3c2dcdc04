"""API keys: what the platform keeps of one, how one is made, and how one that comes is compared.

A key is ``cwk_<id>_<secret>``: the id, 16 hex digits, finds the record and is no secret; the secret is 256 random
bits in base64url. Of it only the SHA-256 is kept. A slow hash, as passwords need, would add nothing: it stands
between a guesser and what people can remember, and nobody goes through 2^256 secrets, however fast each one is
tried. And it would cost every request what it costs the guesser.
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
"""What every key begins with, so that it is told from a token, and found by who looks for leaked ones."""

_KEY = re.compile(PREFIX + r"([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_NOBODYS = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key.

    Attributes:
        id: Finds it; may be shown and logged.
        digest: SHA-256 of the whole key, in hex.
        name: What people call it, and what ``keys`` of a front end profile names. A key and the one that takes its
            place may share it.
        tenant: Whose documents it is for.
        user: On whose behalf it asks: the history and the uploads that it sees.
        oids: With ``groups``, what documents' access lists are compared with.
        roles: Some of `principal.ROLES`.
        profiles: Front end profiles that it may be used on; empty: any.
        created_at: Seconds since 1970.
        expires_at: Likewise; None: never.
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
        """Whether its time is over; ``now`` in seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at

    def matches(self, key: str) -> bool:
        """Whether it is the record of a key; takes as long for a wrong one."""
        return hmac.compare_digest(_digest(key), self.digest)

    def principal(self) -> Principal:
        """Who asks with it. Without ids of its own a user is known to access lists by the name."""
        return Principal(self.tenant, self.user, self.oids or (self.user,), self.groups, self.roles)

    def to_json(self) -> bytes:
        """The record as it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> "ApiKey":
        """A stored record; members that a newer version has written are left aside.

        Raises:
            ValueError: It is none.
        """
        try:
            members = dict(json.loads(raw))
            known = {field.name: members[field.name] for field in fields(cls) if field.name in members}
            lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
            key = cls(**known | lists)
            listed = (*key.oids, *key.groups, *key.profiles, *key.roles)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"no record of an API key: {type(error).__name__}") from None
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
            raise ValueError(
                "no record of an API key: a member is of another type, or its user belongs to an issuer"
            )
        return key


def make(
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
    """A new key and its record; the key itself is nowhere else. Without a user its name stands for one, so that two
    keys share neither history nor uploads by accident.

    Raises:
        InvalidRequest: The user is one that only an identity provider can name.
    """
    if keys.is_issued(user or name):
        raise InvalidRequest(
            f"No key may have the user '{user or name}': names that begin so belong to an identity provider.",
            field="user",
        )
    identity = secrets.token_hex(8)
    key = f"{PREFIX}{identity}_{secrets.token_urlsafe(32)}"
    record = ApiKey(
        identity, _digest(key), name, tenant, user or name, oids, groups, roles, profiles, time.time(), expires_at
    )
    return key, record


def id_of(key: str) -> str | None:
    """The id of the record that a key belongs to; None where it is none at all."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def compare_with_nothing(key: str) -> None:
    """Takes the time of `ApiKey.matches`, for an id that there is no record of."""
    hmac.compare_digest(_digest(key), _NOBODYS)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()

"""OpenID Connect bearer tokens: verified once, then cached until they expire.

Sources: JSON Web Token (RFC 7519), its best current practices (RFC 8725), JWT access tokens (RFC 9068).
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidTokenError,
    MissingRequiredClaimError,
    PyJWTError,
)
from servicekit.errors import Unauthenticated
from servicekit.principal import ROLES, Principal

from gateway.identity.caller import Caller, with_own
from gateway.identity.key_ring import INVALID
from gateway.identity.provider_keys import ProviderKeys
from gateway.identity.settings import ALL

_MOST_KNOWN = 10_000
_LONGEST = 16 * 1024
_WRONG: Sequence[tuple[type[InvalidTokenError], str]] = (
    (ExpiredSignatureError, "The token has expired."),
    (ImmatureSignatureError, "The token is not valid yet."),
    (InvalidAudienceError, "The token is for another audience."),
    (InvalidIssuerError, "The token is of another issuer."),
    (MissingRequiredClaimError, "The token lacks a required claim: iss, aud or exp."),
)


@dataclass(frozen=True, slots=True)
class Claims:
    """The names of the claims. A name with dots is looked up as it is, then as a path into objects.

    Attributes:
        user: The user, who owns history and uploads.
        oids: The ids for access lists; if missing, the user.
        groups: The groups for access lists.
        tenant: The tenant; empty: ``default_tenant`` for all tokens.
        roles: A list, or words in one text.
        profiles: Front end profiles for which the token is valid; empty: all.
        default_tenant: See ``tenant``.
        default_roles: Roles of every token in addition to its own.
        role_names: The provider's names of roles → ours.
        former_names: Users who keep what earlier versions stored under the bare name; ``*``: all.
    """

    user: str = "sub"
    oids: str = "oid"
    groups: str = "groups"
    tenant: str = ""
    roles: str = "roles"
    profiles: str = ""
    default_tenant: str = "local"
    default_roles: Sequence[str] = ()
    role_names: Mapping[str, str] = field(default_factory=dict)
    former_names: frozenset[str] = frozenset()

    def caller(self, claims: Mapping[str, Any]) -> Caller:
        """Return the caller that a token's claims describe.

        Raises:
            Unauthenticated: The claims name no user, or no tenant although one is required.
        """
        user = "".join(_texts(claims, self.user)[:1])
        if not user:
            raise _refused(f"The token names no user: it lacks the claim '{self.user}'.")
        tenant = "".join(_texts(claims, self.tenant)[:1]) if self.tenant else self.default_tenant
        if not tenant:
            raise _refused(f"The token names no tenant: it lacks the claim '{self.tenant}'.")
        words = [word for text in _texts(claims, self.roles) for word in text.split()]
        roles = {self.role_names.get(role, role) for role in words} | set(self.default_roles)
        principal = Principal(
            tenant,
            user,
            _texts(claims, self.oids) or (user,),
            _texts(claims, self.groups),
            tuple(role for role in ROLES if role in roles),
            claims["iss"],
            not self.former_names.isdisjoint((ALL, user)),
        )
        profiles = frozenset(_texts(claims, self.profiles)) if self.profiles else frozenset()
        return Caller(with_own(principal), profiles=profiles, expires_at=float(claims["exp"]))


class Tokens:
    """The tokens of one issuer.

    Args:
        keys: The issuer's keys.
        issuer: The required ``iss``.
        audiences: The audiences; ``aud`` must name one of them.
        algorithms: The allowed signature algorithms.
        claims: The names of the claims.
        resources: Prefix of the addresses of protected resources. A token whose ``aud`` names only such addresses
            is valid only for these addresses. Empty: no such token is valid.
        leeway: Seconds that clocks may differ.
        most: The maximum number of cached tokens.
        now: Returns seconds since 1970.
    """

    def __init__(
        self,
        keys: ProviderKeys,
        issuer: str,
        audiences: Sequence[str],
        algorithms: Sequence[str],
        claims: Claims,
        *,
        resources: str = "",
        leeway: float = 30.0,
        most: int = _MOST_KNOWN,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audiences = list(audiences)
        self._algorithms = list(algorithms)
        self._claims = claims
        self._resources = resources
        self._leeway = leeway
        self._most = most
        self._now = now
        # The keys are the tokens' hashes, so that a memory dump shows no token.
        self._known: dict[bytes, Caller] = {}
        # When a key is removed, the tokens that it has signed become invalid.
        keys.on_change = self._known.clear

    def known(self, token: str) -> Caller | None:
        """Return the caller of a token that was verified before and has not expired; None: it must be verified."""
        digest = _digest(token)
        caller = self._known.get(digest)
        if caller is None or self._ended(caller):
            self._known.pop(digest, None)
            return None
        return caller

    async def caller(self, token: str) -> Caller:
        """Return the caller of a token.

        Raises:
            Unauthenticated: The token is invalid.
            Unavailable: The issuer's keys are not known yet.
        """
        if len(token) > _LONGEST:
            raise _refused("The token is too long.")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self._algorithms:
                raise _refused("The token is signed with an algorithm that is not allowed here.")
            key = await self._keys.find(header.get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"], "verify_aud": False},
            )
            caller = replace(self._claims.caller(claims), resources=self._only_for(claims["aud"]))
        except PyJWTError as error:
            reason = next((text for kind, text in _WRONG if isinstance(error, kind)), "This is not a valid token.")
            raise _refused(reason) from error
        while len(self._known) >= self._most:
            self._known.pop(next(iter(self._known)))  # the oldest
        self._known[_digest(token)] = caller
        return caller

    def _only_for(self, audience: Any) -> frozenset[str]:
        """Return the only addresses for which a token is valid; empty for a token of the whole gateway.

        Raises:
            InvalidAudienceError: The token is for another audience.
        """
        named = [audience] if isinstance(audience, str) else audience
        if not named:
            raise MissingRequiredClaimError("aud")
        if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
            raise InvalidAudienceError("Invalid claim format in token")
        if any(each in self._audiences for each in named):
            return frozenset()
        resources = frozenset(each for each in named if self._resources and each.startswith(f"{self._resources}/"))
        if not resources:
            raise InvalidAudienceError("Audience doesn't match")
        return resources

    def _ended(self, caller: Caller) -> bool:
        return caller.expires_at is not None and caller.expires_at <= self._now() - self._leeway


def _texts(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the values of a claim, one text or many; empty if it is missing or of another type.

    Raises:
        Unauthenticated: It has a lone surrogate, which JSON can write and UTF-8 cannot.
    """
    value: Any = claims.get(name)
    if value is None and "." in name:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    listed = value if isinstance(value, list) else [value]
    texts = tuple(dict.fromkeys(text for text in listed if isinstance(text, str) and text))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise _refused(f"The token's claim '{name}' is not valid Unicode.") from error
    return texts


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _refused(message: str) -> Unauthenticated:
    return Unauthenticated(message, field="authorization", details=INVALID)

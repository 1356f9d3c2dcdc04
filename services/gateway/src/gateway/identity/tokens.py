"""Verifies OpenID Connect bearer tokens, and caches the result until a token expires.

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

from gateway.identity.caller import Caller, with_own_oids
from gateway.identity.key_ring import INVALID
from gateway.identity.provider_keys import ProviderKeys
from gateway.identity.settings import ALL

_MAX_CACHED = 10_000
_MAX_LENGTH = 16 * 1024
_REASONS: Sequence[tuple[type[InvalidTokenError], str]] = (
    (ExpiredSignatureError, "The token has expired."),
    (ImmatureSignatureError, "The token is not valid yet."),
    (InvalidAudienceError, "The token is for another audience."),
    (InvalidIssuerError, "The token is from another issuer."),
    (MissingRequiredClaimError, "The token lacks a required claim: iss, aud or exp."),
)


@dataclass(frozen=True, slots=True)
class Claims:
    """The names of the claims. A name with dots may be a claim's name or a path into nested objects.

    Attributes:
        user: The claim with the user, who owns conversations and uploads.
        oids: The claim with the ids for access lists; without this claim, the user is the only id.
        groups: The claim with the groups for access lists.
        tenant: The claim with the tenant; empty: all tokens have the tenant ``default_tenant``.
        roles: The claim with the roles, as a list or as words in one text.
        profiles: The claim with the front end profiles for which the token is valid; empty: all.
        default_tenant: The tenant, if ``tenant`` is empty.
        default_roles: Roles that every token has in addition to its claim.
        role_names: The platform's role for each role name of the provider.
        former_names: The users who own the data that earlier versions stored under the bare user name; ``*``: all.
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
            Unauthenticated: The claims name no user, or no tenant although ``tenant`` names a claim.
        """
        user = "".join(_texts(claims, self.user)[:1])
        if not user:
            raise _refusal(f"The token names no user: it lacks the claim '{self.user}'.")
        tenant = "".join(_texts(claims, self.tenant)[:1]) if self.tenant else self.default_tenant
        if not tenant:
            raise _refusal(f"The token names no tenant: it lacks the claim '{self.tenant}'.")
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
        return Caller(with_own_oids(principal), profiles=profiles, expires_at=float(claims["exp"]))


class Tokens:
    """Verifies the tokens of one issuer.

    Args:
        keys: The issuer's keys.
        issuer: The required ``iss``.
        audiences: The accepted audiences. ``aud`` must contain one of them.
        algorithms: The allowed signature algorithms.
        claims: The names of the claims.
        resources: The prefix of the addresses of protected resources. A token whose ``aud`` contains only such
            addresses is valid only for these addresses. Empty: no such token is valid.
        leeway: The maximum difference of clocks, in seconds.
        cache_size: The maximum number of cached tokens.
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
        cache_size: int = _MAX_CACHED,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audiences = list(audiences)
        self._algorithms = list(algorithms)
        self._claims = claims
        self._resources = resources
        self._leeway = leeway
        self._cache_size = cache_size
        self._now = now
        # The dict's keys are hashes of the tokens, so that a memory dump contains no token.
        self._cache: dict[bytes, Caller] = {}
        # A removed key invalidates the tokens that it signed.
        keys.on_change = self._cache.clear

    def cached(self, token: str) -> Caller | None:
        """Return the cached caller of a token; None if the token was not verified or has expired."""
        digest = _digest(token)
        caller = self._cache.get(digest)
        if caller is None or self._expired(caller):
            self._cache.pop(digest, None)
            return None
        return caller

    async def caller(self, token: str) -> Caller:
        """Verify a token, and return its caller.

        Raises:
            Unauthenticated: The token is invalid, too long or expired, or names no user.
            Unavailable: The issuer's keys were not fetched yet.
        """
        if len(token) > _MAX_LENGTH:
            raise _refusal("The token is too long.")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self._algorithms:
                raise _refusal("The token is signed with an algorithm that the gateway does not allow.")
            key = await self._keys.find(header.get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"], "verify_aud": False},
            )
            caller = replace(self._claims.caller(claims), resources=self._protected_resources(claims["aud"]))
        except PyJWTError as error:
            reason = next(
                (text for kind, text in _REASONS if isinstance(error, kind)), "This is not a valid token."
            )
            raise _refusal(reason) from error
        while len(self._cache) >= self._cache_size:
            self._cache.pop(next(iter(self._cache)))  # a dict keeps the order of insertion
        self._cache[_digest(token)] = caller
        return caller

    def _protected_resources(self, audience: Any) -> frozenset[str]:
        """Return the protected resources for which a token is valid; empty: the whole gateway.

        Raises:
            InvalidAudienceError: The token is for another audience.
            MissingRequiredClaimError: The audience is empty.
        """
        audiences = [audience] if isinstance(audience, str) else audience
        if not audiences:
            raise MissingRequiredClaimError("aud")
        if not isinstance(audiences, list) or not all(isinstance(name, str) for name in audiences):
            raise InvalidAudienceError("Invalid claim format in token")
        if any(name in self._audiences for name in audiences):
            return frozenset()
        resources = frozenset(
            name for name in audiences if self._resources and name.startswith(f"{self._resources}/")
        )
        if not resources:
            raise InvalidAudienceError("Audience doesn't match")
        return resources

    def _expired(self, caller: Caller) -> bool:
        return caller.expires_at is not None and caller.expires_at <= self._now() - self._leeway


def _texts(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the strings of a claim, which is a string or a list.

    Return an empty tuple if the claim is missing or has another type.

    Raises:
        Unauthenticated: The claim contains a lone surrogate, which UTF-8 cannot encode.
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
        raise _refusal(f"The token's claim '{name}' is not valid Unicode.") from error
    return texts


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _refusal(message: str) -> Unauthenticated:
    return Unauthenticated(message, field="authorization", details=INVALID)

"""The caller of a request, as the layers inside authentication see it."""

from dataclasses import dataclass, replace

from servicekit import keys
from servicekit.principal import LOCAL, Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, and the properties of its credential.

    Attributes:
        principal: The principal on whose behalf the request runs.
        key_id: Id of the API key, never the key itself; empty for a token, or without a credential.
        key_name: The key's name, which front end profiles list; may be empty like ``key_id``.
        profiles: Front end profiles for which the credential is valid; empty: all.
        resources: Addresses of the only routes for which the credential is valid; empty: all routes.
        expires_at: When the credential expires, in seconds since 1970; None: never.
    """

    principal: Principal
    key_id: str = ""
    key_name: str = ""
    profiles: frozenset[str] = frozenset()
    expires_at: float | None = None
    resources: frozenset[str] = frozenset()


def with_own(principal: Principal) -> Principal:
    """Return the principal with exactly one id of a user's own documents: the caller's.

    An issuer of tokens may name any ids; only the gateway assigns the ids of users' own documents.
    """
    oids = tuple(oid for oid in principal.oids if not keys.is_own_oid(oid))
    return replace(principal, oids=(*oids, *map(keys.own_oid, principal.owners)))


LOOPBACK = Caller(LOCAL)
"""The caller without authentication."""

NOBODY = Caller(Principal("nobody"))
"""The caller on public routes: it has no role, and its tenant owns nothing."""

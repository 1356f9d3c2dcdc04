"""The caller of a request: its principal and the properties of its credential."""

from dataclasses import dataclass, replace

from servicekit import keys
from servicekit.principal import LOCAL, Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, and the properties of its credential.

    Attributes:
        principal: The principal on whose behalf the request runs.
        key_id: The id of the API key, never the key itself; empty if the caller uses no API key.
        key_name: The name of the API key, which front end profiles list; empty if the caller uses no API key.
        profiles: The front end profiles for which the credential is valid; empty: all.
        resources: The addresses of the routes for which the credential is valid; empty: all.
        expires_at: The time at which the credential expires, in seconds since 1970; None: it never expires.
    """

    principal: Principal
    key_id: str = ""
    key_name: str = ""
    profiles: frozenset[str] = frozenset()
    expires_at: float | None = None
    resources: frozenset[str] = frozenset()


def with_own_oids(principal: Principal) -> Principal:
    """Return the principal with the access-list ids of its own documents, and without such ids of other users.

    A token may contain any ids. Only the gateway assigns the ids of users' own documents.
    """
    oids = tuple(oid for oid in principal.oids if not keys.is_own_oid(oid))
    return replace(principal, oids=(*oids, *map(keys.own_oid, principal.owners)))


LOOPBACK = Caller(LOCAL)
"""The caller of every request if the gateway runs without authentication."""

ANONYMOUS = Caller(Principal("nobody"))
"""The caller of public routes. This caller has no role, and its tenant owns no data."""

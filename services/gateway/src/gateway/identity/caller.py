"""Who asks, as everything inside the layers of identity finds it."""

from dataclasses import dataclass, replace

from servicekit import keys
from servicekit.principal import LOCAL, Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and by what this is known.

    Attributes:
        principal: On whose behalf the request runs.
        key_id: Id of the API key; empty where it was a token, or nothing. Never the key itself.
        key_name: The key's name, which front end profiles list; empty likewise.
        profiles: Front end profiles that the credential is good for; empty: all.
        resources: Addresses of the routes that the credential is for alone; empty: all routes.
        expires_at: When the credential ends, in seconds since 1970; None: never.
    """

    principal: Principal
    key_id: str = ""
    key_name: str = ""
    profiles: frozenset[str] = frozenset()
    expires_at: float | None = None
    resources: frozenset[str] = frozenset()


def with_own(principal: Principal) -> Principal:
    """Return who asks, holding also what opens the documents of the user's own, and nothing that opens another's.

    An issuer of tokens may name any ids; only the gateway gives out those of users' own documents.
    """
    oids = tuple(oid for oid in principal.oids if not keys.is_own_oid(oid))
    return replace(principal, oids=(*oids, *map(keys.own_oid, principal.owners)))


LOOPBACK = Caller(LOCAL)
"""Who asks where nobody is asked who they are."""

NOBODY = Caller(Principal("nobody"))
"""Who asks on routes that are open to everybody: has no role, and a tenant that nothing belongs to."""

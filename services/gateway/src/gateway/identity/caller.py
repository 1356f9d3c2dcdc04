"""Who asks, as everything inside the layers of identity finds it."""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any

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
        expires_at: When the credential ends, in seconds since 1970; None: never.
    """

    principal: Principal
    key_id: str = ""
    key_name: str = ""
    profiles: frozenset[str] = frozenset()
    expires_at: float | None = None


def with_own(principal: Principal) -> Principal:
    """Who asks, holding also what opens the documents of the user's own."""
    return replace(principal, oids=(*principal.oids, keys.own_oid(principal.user)))


LOOPBACK = Caller(LOCAL)
"""Who asks where nobody is asked who they are."""

NOBODY = Caller(Principal("nobody"))
"""Who asks on routes that are open to everybody: has no role, and a tenant that nothing belongs to."""


def place(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Puts the caller where everything inside looks: ``scope["state"]["caller"]`` (quotas, audit), and the caller's
    principal alone at ``scope["state"]["principal"]`` (routes, which need no more).
    """
    state = scope.setdefault("state", {})
    state["caller"] = caller
    state["principal"] = caller.principal


def caller_of(scope: MutableMapping[str, Any]) -> Caller:
    """Who asks."""
    found: Caller = scope["state"]["caller"]
    return found


def principal_of(scope: MutableMapping[str, Any]) -> Principal:
    """Who asks, as services behind the gateway know it."""
    found: Principal = scope["state"]["principal"]
    return found

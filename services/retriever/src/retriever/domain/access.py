"""Access lists as tokens: a document carries those that open it, a caller those it holds; one in common suffices.

The same tokens are compared inside a search (by the store) and on single records (here), so that the two can never
disagree.
"""

from servicekit.principal import Principal

from retriever.domain.document import AccessControl

EVERYBODY = "*"


def readers(access: AccessControl) -> list[str]:
    """Tokens that open a document."""
    if not access.oids and not access.groups:
        return [EVERYBODY]
    return [*(f"oid:{oid}" for oid in access.oids), *(f"group:{group}" for group in access.groups)]


def held_by(principal: Principal) -> frozenset[str] | None:
    """Tokens that a caller holds; None where access lists do not bind the caller."""
    if principal.sees_everything:
        return None
    return frozenset(
        (EVERYBODY, *(f"oid:{oid}" for oid in principal.oids), *(f"group:{group}" for group in principal.groups))
    )


def may_see(principal: Principal, access: AccessControl) -> bool:
    """Whether a caller may see a document."""
    held = held_by(principal)
    return held is None or not held.isdisjoint(readers(access))

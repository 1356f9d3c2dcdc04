"""Access lists as tokens. A caller may see a document if the caller has one of the document's tokens.

Searches in the store and checks of single records compare the same tokens, so they always agree.
"""

from servicekit.principal import Principal

from retriever.domain.document import AccessControl

ANY_USER = "*"


def document_tokens(access: AccessControl) -> list[str]:
    """Return the tokens of a document. A caller needs one of them to see the document."""
    if not access.oids and not access.groups:
        return [ANY_USER]
    return [*(f"oid:{oid}" for oid in access.oids), *(f"group:{group}" for group in access.groups)]


def caller_tokens(principal: Principal) -> frozenset[str] | None:
    """Return the tokens of a caller, or None if access lists do not apply to the caller."""
    if principal.sees_everything:
        return None
    return frozenset(
        (ANY_USER, *(f"oid:{oid}" for oid in principal.oids), *(f"group:{group}" for group in principal.groups))
    )


def may_see(principal: Principal, access: AccessControl) -> bool:
    """Return whether a caller may see a document."""
    tokens = caller_tokens(principal)
    return tokens is None or not tokens.isdisjoint(document_tokens(access))

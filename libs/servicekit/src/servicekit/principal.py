"""Who asks: the caller as every service sees it."""

from dataclasses import dataclass

from causeway.identity.v1 import principal_pb2

from servicekit import keys
from servicekit.errors import Unauthenticated

ROLES = ("ask", "ingest", "admin")
"""``ask``: questions, passages, one's own history. ``ingest``: documents in and out. ``admin``: both, and indexes
as a whole; access lists do not bind it. Each within its own tenant."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller on whose behalf a request runs.

    ``roles`` are some of `ROLES`; ``oids`` and ``groups`` are what documents' access lists name. The gateway alone
    knows ``issuer`` and ``has_former_name``; other services need ``oids``.

    Attributes:
        issuer: Provider whose token names the user; empty: the user is a key's, or is not known.
        has_former_name: What earlier versions stored under the bare name is this user's.
    """

    tenant: str
    user: str = ""
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    issuer: str = ""
    has_former_name: bool = False

    @property
    def owner(self) -> str:
        """Name under which the user's uploads and conversations are stored; no user of another issuer has it."""
        return keys.user_of(self.issuer, self.user) if self.issuer else self.user

    @property
    def owners(self) -> tuple[str, ...]:
        """Names under which they may stand: the one of today, and the one of earlier versions."""
        return (self.owner, self.user) if self.has_former_name else (self.owner,)

    @property
    def sees_everything(self) -> bool:
        """Access lists do not bind the administrators of a tenant."""
        return "admin" in self.roles

    def has_role(self, role: str) -> bool:
        """Whether it may do what a role may; an administrator may do everything."""
        return role in self.roles or "admin" in self.roles

    def to_proto(self) -> principal_pb2.Principal:
        """The message that crosses to other services."""
        return principal_pb2.Principal(
            tenant=self.tenant, user=self.user, oids=self.oids, groups=self.groups, roles=self.roles
        )

    @classmethod
    def from_proto(cls, message: principal_pb2.Principal) -> "Principal":
        """The caller that a message names.

        Raises:
            Unauthenticated: No tenant is named: the message did not come through a gateway.
        """
        if not message.tenant:
            raise Unauthenticated("The request names no tenant.", field="principal.tenant")
        return cls(
            message.tenant,
            message.user,
            tuple(message.oids),
            tuple(message.groups),
            tuple(message.roles),
        )


LOCAL = Principal(tenant="local", roles=ROLES)
"""The caller of a stack without authentication, which listens on loopback only."""


def issuer_and_user(owner: str) -> tuple[str, str]:
    """Return the issuer and the user of a `Principal.owner`; no issuer where the user is a key's."""
    if not keys.is_issued(owner):
        return "", owner
    issuer, _, user = owner.partition(":")[2].partition(" ")
    return issuer, user

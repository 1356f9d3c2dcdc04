"""The principal: the caller of a request, in the form that all services use."""

from dataclasses import dataclass

from causeway.identity.v1 import principal_pb2

from servicekit import keys
from servicekit.errors import Unauthenticated

ROLES = ("ask", "ingest", "admin")
"""The roles, each within its tenant. ``ask``: read answers, passages and the caller's own history. ``ingest``: add
and remove documents. ``admin``: both, and manage whole indexes, regardless of access lists."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request.

    ``roles`` are a subset of `ROLES`; documents' access lists contain ``oids`` and ``groups``. Only the gateway
    uses ``issuer`` and ``has_former_name``, so messages to other services do not contain them.

    Attributes:
        issuer: The provider of the user's token; empty if the user belongs to a key, or is unknown.
        has_former_name: Whether data that earlier versions stored under ``user``, without the issuer, belongs to
            this user.
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
        """The name under which the user's uploads and conversations are stored, unique across issuers."""
        return keys.user_of(self.issuer, self.user) if self.issuer else self.user

    @property
    def owners(self) -> tuple[str, ...]:
        """The names under which the user's data may be stored: the current name, and that of earlier versions."""
        return (self.owner, self.user) if self.has_former_name else (self.owner,)

    @property
    def sees_everything(self) -> bool:
        """Whether access lists do not apply; this is true for administrators of a tenant."""
        return "admin" in self.roles

    def has_role(self, role: str) -> bool:
        """Return whether the caller has a role; an administrator has all roles."""
        return role in self.roles or "admin" in self.roles

    def to_proto(self) -> principal_pb2.Principal:
        """Return the message for other services."""
        return principal_pb2.Principal(
            tenant=self.tenant, user=self.user, oids=self.oids, groups=self.groups, roles=self.roles
        )

    @classmethod
    def from_proto(cls, message: principal_pb2.Principal) -> "Principal":
        """Return the principal of a message.

        Raises:
            Unauthenticated: The message has no tenant, so it did not come through a gateway.
        """
        if not message.tenant:
            raise Unauthenticated("The request has no tenant.", field="principal.tenant")
        return cls(
            message.tenant,
            message.user,
            tuple(message.oids),
            tuple(message.groups),
            tuple(message.roles),
        )


LOCAL = Principal(tenant="local", roles=ROLES)
"""The caller of a stack without authentication, which listens only on loopback."""


def issuer_and_user(owner: str) -> tuple[str, str]:
    """Return the issuer and the user of a `Principal.owner`; the issuer is empty for the user of a key."""
    if not keys.is_issued(owner):
        return "", owner
    issuer, _, user = owner.partition(":")[2].partition(" ")
    return issuer, user

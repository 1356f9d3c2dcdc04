"""Signed links to documents: their contents, and the keys with which all replicas sign and verify them."""

import base64
import binascii
import hashlib
import hmac

import msgspec
from servicekit.errors import PermissionDenied, Unavailable
from servicekit.principal import Principal

from gateway.identity.period_keys import PeriodKeys

PARAMETER = "link"
"""The query parameter of a link."""
PREFIX = "cwl1."
"""The prefix of every signature, with the version of its format."""
LONGEST_SECONDS = 3600
"""The lifetime of a link in seconds."""
PERIOD = 12 * 3600
"""Seconds for which one key signs new links."""

_LONGEST = 4096
_encode = msgspec.msgpack.Encoder().encode


class LinkedDocument(msgspec.Struct, frozen=True, array_like=True):
    """The document of a link, with everything that is needed to check the access again.

    Attributes:
        profile: Front end whose answer cites the document; its rules apply when the link is opened.
        tenant: The tenant of the caller.
        index: The index of the document.
        document_id: The id of the document in the index.
        generation: The cited version.
        user: The caller's user, as in `Principal`.
        issuer: The caller's issuer, as in `Principal`.
        oids: Those of the caller's ids that give access to the document.
        groups: Those of the caller's groups that give access to the document.
        is_admin: The caller is an administrator.
        api_key: Id of the API key that the caller used; empty: none.
        expires_at: Seconds since 1970.
    """

    profile: str
    tenant: str
    index: str
    document_id: str
    generation: int
    user: str
    issuer: str
    oids: tuple[str, ...]
    groups: tuple[str, ...]
    is_admin: bool
    api_key: str
    expires_at: int

    @property
    def principal(self) -> Principal:
        """Return the principal for looking up the document."""
        roles = ("ask", "admin") if self.is_admin else ("ask",)
        return Principal(self.tenant, self.user, self.oids, self.groups, roles, self.issuer)


class LinkKeys(PeriodKeys):
    """The keys that sign links: those of the current period and of the periods before and after it."""

    SECONDS = PERIOD
    KEPT = 1
    AHEAD = LONGEST_SECONDS

    def sign(self, linked: LinkedDocument) -> str | None:
        """Return a signature, which contains the document's data; None: no key is known, or it is too long."""
        key_id = self.newest
        if key_id is None:
            return None
        signed = f"{PREFIX}{key_id}.{_base64url(_encode(linked))}"
        signature = f"{signed}.{_base64url(_mac(self._keys[key_id], signed))}"
        return signature if len(signature) <= _LONGEST else None

    def opened(self, signature: str) -> LinkedDocument:
        """Return the contents of a signature.

        Raises:
            PermissionDenied: The signature is invalid or has expired.
            Unavailable: Its key is not known yet.
        """
        content, _, mac = signature.rpartition(".")
        key_id = key_of(signature)
        if key_id is None or not self.is_good(key_id):
            raise refused()
        key = self._keys.get(key_id)
        if key is None:
            raise Unavailable("Signed links cannot be checked yet. Try again shortly.", retry_after=2)
        if not hmac.compare_digest(_base64url(_mac(key, content)).encode(), mac.encode()):
            raise refused()
        linked = msgspec.msgpack.decode(_raw(content.rpartition(".")[2]), type=LinkedDocument)
        if self._now() >= linked.expires_at:
            raise refused()
        return linked


def key_of(signature: str) -> int | None:
    """Return the id of the key that a signature names; None if the text is no signature."""
    parts = signature.split(".")
    if len(signature) > _LONGEST or len(parts) != 4 or f"{parts[0]}." != PREFIX or not signature.isascii():
        return None
    return int(parts[1]) if parts[1].isdecimal() and len(parts[1]) < 12 else None


def refused() -> PermissionDenied:
    """Return the error for every link that does not open. It does not name the reason."""
    return PermissionDenied("The link is invalid or has expired. Ask again to get a new one.", field=PARAMETER)


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _raw(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise refused() from None

"""Signs and verifies links to documents."""

import base64
import binascii
import hashlib
import hmac

import msgspec
from servicekit.errors import PermissionDenied, Unavailable
from servicekit.principal import Principal

from gateway.identity.period_keys import PeriodKeys

PARAMETER = "link"
"""The query parameter that contains the signature."""
PREFIX = "cwl1."
"""The prefix of every signature, with the version of its format."""
LIFETIME_SECONDS = 3600
"""The lifetime of a link in seconds."""

_MAX_LENGTH = 4096
_MAX_KEY_ID_DIGITS = 11
_encode = msgspec.msgpack.Encoder().encode


class LinkedDocument(msgspec.Struct, frozen=True, array_like=True):
    """The document of a link, and the data to check the access again when a client opens the link.

    Attributes:
        profile: The front end whose answer cites the document. Its rules apply when a client opens the link.
        tenant: The tenant of the caller.
        index: The index of the document.
        document_id: The id of the document in the index.
        generation: The cited version of the document.
        user: The caller's user, as in `Principal`.
        issuer: The caller's issuer, as in `Principal`.
        oids: The caller's ids that permit access to the document.
        groups: The caller's groups that permit access to the document.
        is_admin: Whether the caller is an administrator.
        api_key: The id of the caller's API key; empty: the caller used no API key.
        expires_at: The time at which the link expires, in seconds since 1970.
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
    """The keys that sign links. The keys of the previous, the current and the next period are valid."""

    PERIOD_SECONDS = 12 * 3600
    EARLIER_PERIODS = 1
    AHEAD_SECONDS = LIFETIME_SECONDS

    def expiry(self) -> int:
        """Return the time at which a link that is signed now expires, in seconds since 1970."""
        return int(self._now()) + LIFETIME_SECONDS

    def sign(self, linked: LinkedDocument) -> str | None:
        """Return a signature that contains the document's data.

        Return None if no key is available, or if the signature would be too long for a URL.
        """
        key_id = self.newest
        if key_id is None:
            return None
        signed = f"{PREFIX}{key_id}.{_to_base64url(_encode(linked))}"
        signature = f"{signed}.{_to_base64url(_mac(self._keys[key_id], signed))}"
        return signature if len(signature) <= _MAX_LENGTH else None

    def verify(self, signature: str) -> LinkedDocument:
        """Verify a signature and return its contents.

        Raises:
            PermissionDenied: The signature is invalid or has expired.
            Unavailable: The gateway does not have the key of the signature yet.
        """
        content, _, mac = signature.rpartition(".")
        key_id = key_id_of(signature)
        if key_id is None or not self.is_valid(key_id):
            raise invalid_link_error()
        key = self._keys.get(key_id)
        if key is None:
            raise Unavailable(
                "The gateway does not have the key of this link yet. Try again in a few seconds.", retry_after=2
            )
        if not hmac.compare_digest(_to_base64url(_mac(key, content)).encode(), mac.encode()):
            raise invalid_link_error()
        linked = msgspec.msgpack.decode(_from_base64url(content.rpartition(".")[2]), type=LinkedDocument)
        if self._now() >= linked.expires_at:
            raise invalid_link_error()
        return linked


def key_id_of(signature: str) -> int | None:
    """Return the id of the key of a signature; None if the text is not a signature."""
    parts = signature.split(".")
    if len(signature) > _MAX_LENGTH or len(parts) != 4 or f"{parts[0]}." != PREFIX or not signature.isascii():
        return None
    return int(parts[1]) if parts[1].isdecimal() and len(parts[1]) <= _MAX_KEY_ID_DIGITS else None


def invalid_link_error() -> PermissionDenied:
    """Return the error for an invalid link. The message does not contain the reason."""
    return PermissionDenied("The link is invalid or has expired. Ask again to get a new one.", field=PARAMETER)


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)


def _to_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _from_base64url(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise invalid_link_error() from None

"""Encrypted contents: texts that clients keep for the platform and cannot read or change."""

import base64
import binascii
import secrets

import msgspec
from servicekit.errors import Unavailable
from servicekit.principal import Principal

from gateway.identity.period_keys import PeriodKeys

_PREFIX = "cwe1."
"""The prefix of every encrypted content, with the version of its format."""
_NONCE = 12
_DAY = 24 * 3600
_encode = msgspec.msgpack.Encoder().encode


class ContentKeys(PeriodKeys):
    """`Sealing` with AES-256-GCM and the ring's keys. A content can be read for a year.

    The owner, the front end and the kind of the content are authenticated with it: no other user, front end or use
    can open it.
    """

    SECONDS = 30 * _DAY
    KEPT = 12
    AHEAD = _DAY

    def seal(self, owner: Principal, profile: str, kind: str, text: str) -> str:
        """See `Sealing`."""
        key_id = self.newest
        if key_id is None:
            return ""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # imported here because it takes 8 MB

        nonce = secrets.token_bytes(_NONCE)
        sealed = AESGCM(self._keys[key_id]).encrypt(nonce, text.encode(), _bound(owner, profile, kind))
        return f"{_PREFIX}{key_id}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def opened(self, owner: Principal, profile: str, kind: str, sealed: str) -> str | None:
        """See `Sealing`."""
        if not self.ids:
            raise Unavailable("Encrypted contents cannot be read yet. Try again shortly.", retry_after=2)
        number, _, data = sealed.removeprefix(_PREFIX).partition(".")
        if not sealed.startswith(_PREFIX) or not (number.isascii() and number.isdigit() and len(number) < _NONCE):
            return None
        key = self._keys.get(int(number))
        if key is None or not self.is_good(int(number)):
            return None
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            raw = base64.b64decode(data, altchars=b"-_", validate=True)
            text = AESGCM(key).decrypt(raw[:_NONCE], raw[_NONCE:], _bound(owner, profile, kind))
        except (binascii.Error, InvalidTag, ValueError):
            return None
        return text.decode()


def _bound(owner: Principal, profile: str, kind: str) -> bytes:
    return _encode((kind, owner.tenant, owner.owner, profile))

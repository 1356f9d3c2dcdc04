"""Encrypts texts that clients store for the platform. Clients cannot read or change these texts."""

import base64
import binascii
import secrets

import msgspec
from servicekit.errors import Unavailable
from servicekit.principal import Principal

from gateway.identity.period_keys import PeriodKeys

_PREFIX = "cwe1."
"""The prefix of every encrypted content, with the version of its format."""
_NONCE_BYTES = 12
_MAX_KEY_ID_DIGITS = 11
_DAY_SECONDS = 24 * 3600
_encode = msgspec.msgpack.Encoder().encode


class ContentKeys(PeriodKeys):
    """Implements `Sealing` with AES-256-GCM and a ring of keys. A text can be decrypted for at least 360 days.

    The associated data of the encryption are the owner, the front end and the kind of the text. Decryption
    therefore fails for another user, front end or kind.
    """

    PERIOD_SECONDS = 30 * _DAY_SECONDS
    EARLIER_PERIODS = 12
    AHEAD_SECONDS = _DAY_SECONDS

    def seal(self, owner: Principal, profile: str, kind: str, text: str) -> str:
        """See `Sealing`."""
        key_id = self.newest
        if key_id is None:
            return ""
        from cryptography.hazmat.primitives.ciphers.aead import (
            AESGCM,
        )  # a lazy import, because the library needs 8 MB

        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._keys[key_id]).encrypt(nonce, text.encode(), _associated_data(owner, profile, kind))
        return f"{_PREFIX}{key_id}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def unseal(self, owner: Principal, profile: str, kind: str, sealed: str) -> str | None:
        """See `Sealing`."""
        if not self.ids:
            raise Unavailable(
                "The gateway does not have the keys of encrypted contents yet. Try again in a few seconds.",
                retry_after=2,
            )
        number, _, data = sealed.removeprefix(_PREFIX).partition(".")
        if not sealed.startswith(_PREFIX) or not (
            number.isascii() and number.isdigit() and len(number) <= _MAX_KEY_ID_DIGITS
        ):
            return None
        key = self._keys.get(int(number))
        if key is None or not self.is_valid(int(number)):
            return None
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            raw = base64.b64decode(data, altchars=b"-_", validate=True)
            text = AESGCM(key).decrypt(
                raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _associated_data(owner, profile, kind)
            )
        except (binascii.Error, InvalidTag, ValueError):
            return None
        return text.decode()


def _associated_data(owner: Principal, profile: str, kind: str) -> bytes:
    return _encode((kind, owner.tenant, owner.owner, profile))

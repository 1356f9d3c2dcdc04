"""Encrypts and decrypts contents of items: the reasoning of models, and summaries of conversations."""

from dataclasses import dataclass

from servicekit.principal import Principal

from gateway.dialects.json_fields import Fields
from gateway.ports.sealing import Sealing

REASONING, COMPACTION = "reasoning", "compaction"
"""The kinds of encrypted contents."""


@dataclass(frozen=True, slots=True)
class ItemCipher:
    """Encrypts and decrypts the contents of items, for one user and one front end.

    Attributes:
        sealing: Encrypts and decrypts texts. With None, no text is encrypted, and encrypted contents are refused.
        owner: The user.
        profile: The name of the front end.
    """

    sealing: Sealing | None
    owner: Principal
    profile: str

    def encrypt(self, kind: str, text: str) -> str:
        """Return the encrypted text, or an empty string if `sealing` is None or the gateway has no key yet."""
        return "" if self.sealing is None else self.sealing.seal(self.owner, self.profile, kind, text)

    def decrypt(self, kind: str, fields: Fields) -> str:
        """Return the decrypted ``encrypted_content`` of an item, or an empty string if the item has no such member.

        Raises:
            InvalidRequest: The content is damaged or expired, or belongs to another user or front end.
            Unavailable: The gateway has no keys yet.
        """
        content = fields.text("encrypted_content")
        if not content:
            return ""
        text = None if self.sealing is None else self.sealing.unseal(self.owner, self.profile, kind, content)
        if text is None:
            raise fields.invalid(
                "encrypted_content",
                "cannot be decrypted: it is damaged, expired, or belongs to another user or front end. Omit it",
            )
        return text

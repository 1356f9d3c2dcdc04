"""Encrypted contents of items: the reasoning of models, and summaries of conversations."""

from dataclasses import dataclass

from servicekit.principal import Principal

from gateway.dialects.json_fields import Fields
from gateway.ports.sealing import Sealing

REASONING, COMPACTION = "reasoning", "compaction"
"""Kinds of contents."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Encrypts and decrypts the contents of one user in one front end.

    Attributes:
        sealing: Encrypts; None: there are no keys.
        owner: The user.
        profile: Name of the front end.
    """

    sealing: Sealing | None
    owner: Principal
    profile: str

    def seal(self, kind: str, text: str) -> str:
        """Return the encrypted text; empty if no key is known."""
        return "" if self.sealing is None else self.sealing.seal(self.owner, self.profile, kind, text)

    def opened(self, kind: str, fields: Fields) -> str:
        """Return the text of an item's ``encrypted_content``; empty if the item has none.

        Raises:
            InvalidRequest: The content was not made for this user and this front end.
            Unavailable: The keys are not known yet.
        """
        content = fields.text("encrypted_content")
        if not content:
            return ""
        text = None if self.sealing is None else self.sealing.opened(self.owner, self.profile, kind, content)
        if text is None:
            raise fields.wrong(
                "encrypted_content", "cannot be read: it was not made for this user in this front end"
            )
        return text

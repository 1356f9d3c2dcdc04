"""The encryption of texts that clients store for the platform."""

from typing import Protocol

from servicekit.principal import Principal


class Sealing(Protocol):
    """Encrypts the texts of a user, so that only the platform can read them, and only for this user."""

    def seal(self, owner: Principal, profile: str, kind: str, text: str) -> str:
        """Return the encrypted text, or an empty text if no key is known.

        Args:
            owner: The user who owns the text.
            profile: The name of the front end.
            kind: The kind of the text.
            text: The text.
        """
        ...

    def unseal(self, owner: Principal, profile: str, kind: str, sealed: str) -> str | None:
        """Return the decrypted text.

        Return None if the text was not encrypted for this user, front end and kind, or if its key has expired.

        Raises:
            Unavailable: The keys are not known yet.
        """
        ...

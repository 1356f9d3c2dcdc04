"""Encryption of texts that clients keep for the platform."""

from typing import Protocol

from servicekit.principal import Principal


class Sealing(Protocol):
    """Encrypts texts so that only the platform can read them, for the user that they belong to."""

    def seal(self, owner: Principal, profile: str, kind: str, text: str) -> str:
        """Return a text encrypted; empty where no key is known.

        Args:
            owner: The user that it belongs to.
            profile: Name of the front end.
            kind: What the text is.
            text: The text.
        """
        ...

    def opened(self, owner: Principal, profile: str, kind: str, sealed: str) -> str | None:
        """Return the text of an encrypted content; None where it is none of this user, front end and kind.

        Raises:
            Unavailable: The keys are not known yet.
        """
        ...

"""Secrets in files that somebody else renews, such as the volume of a Kubernetes Secret."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from pydantic import SecretStr

LOOK_SECONDS = 1.0
_log = structlog.get_logger(__name__)


class SecretFile(SecretStr):
    """What a file holds; who asks for its value soon gets the new one after the file has changed.

    The file is looked at when the value is asked for, at most once in `LOOK_SECONDS`: a look costs a few
    microseconds. A file that cannot be read any more, or holds nothing that can be used, leaves the old value in
    place and is logged once.

    Two of them are equal when they name the same file, so that what is made for one stays while its value changes.

    Args:
        path: The file; space around its text is left out.
        check: Raises ValueError where the text cannot be used.
        clock: Seconds, monotonic.

    Raises:
        OSError, UnicodeDecodeError: The file cannot be read.
        ValueError: It is empty, or `check` refuses its text.
    """

    def __init__(
        self, path: Path, check: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._check = check
        self._clock = clock
        self._state: tuple[int, int, int] | None = self._stat()
        self._looked_at = clock()
        super().__init__(self._read())

    def get_secret_value(self) -> str:
        """Return what the file holds now, or what it held when it could last be used."""
        now = self._clock()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._look()
        return super().get_secret_value()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretFile) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def _look(self) -> None:
        try:
            state = self._stat()
            if state == self._state:
                return
            self._secret_value = self._read()
            self._state = state
        except (OSError, ValueError) as error:
            if self._state is not None:
                # The words of a UnicodeDecodeError would hold a part of the file.
                said = type(error).__name__ if isinstance(error, OSError | UnicodeError) else str(error)
                _log.warning("a key file cannot be used; keeping the old key", path=str(self._path), error=said)
            self._state = None
        else:
            _log.info("key file read again", path=str(self._path))

    def _stat(self) -> tuple[int, int, int]:
        found = os.stat(self._path)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> str:
        text = self._path.read_text().strip()
        if not text:
            raise ValueError("it is empty")
        self._check(text)
        return text


def check_sendable(text: str) -> None:
    """Raise ValueError where a text cannot be sent as a header."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("this holds characters that cannot stand in a header")

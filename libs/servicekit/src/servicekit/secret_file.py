"""Secrets in files that another program renews, for example in the volume of a Kubernetes Secret."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from pydantic import SecretStr

CHECK_SECONDS = 1.0
_log = structlog.get_logger(__name__)


class SecretFile(SecretStr):
    """The content of a file; the value follows changes of the file.

    The file is checked when the value is read, at most once in `CHECK_SECONDS`; a check takes a few microseconds.
    If the file can no longer be read or is invalid, the old value remains and the problem is logged once.

    Two instances are equal if they have the same path, so that caches keep their entries when the value changes.

    Args:
        path: The file; white space around its text is removed.
        check: Raises ValueError for an invalid text.
        clock: Seconds, monotonic.

    Raises:
        OSError, UnicodeDecodeError: The file cannot be read.
        ValueError: The file is empty, or `check` refuses its text.
    """

    def __init__(
        self, path: Path, check: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._check = check
        self._clock = clock
        self._state: tuple[int, int, int] | None = self._stat()
        self._checked_at = clock()
        super().__init__(self._read())

    def get_secret_value(self) -> str:
        """Return the content of the file, or its last valid content."""
        now = self._clock()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._reload()
        return super().get_secret_value()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretFile) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def _reload(self) -> None:
        try:
            state = self._stat()
            if state == self._state:
                return
            self._secret_value = self._read()
            self._state = state
        except (OSError, ValueError) as error:
            if self._state is not None:
                # The message of a UnicodeDecodeError would contain a part of the file.
                reason = type(error).__name__ if isinstance(error, OSError | UnicodeError) else str(error)
                _log.warning("a key file cannot be used; keeping the old key", path=str(self._path), error=reason)
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
    """Raise ValueError if a text cannot be sent as a header."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("this contains characters that a header must not contain")

"""The output of a child process: a bounded log file, and the last lines for error messages."""

import asyncio
import codecs
import logging
import os
from collections import deque
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_OLD_FILES = 2
_READ_BYTES = 64 * 1024
_MAX_LINE_CHARACTERS = 64 * 1024
_LAST_LINES = 20


class OutputLog:
    """The log of one program, across its restarts.

    The constructor rotates an existing file. A full file is also rotated: the file and two older ones together
    have at most three times ``file_bytes``.

    Args:
        path: The file.
        echo: Called with each line.
        file_bytes: The maximum size of a file in bytes.
    """

    def __init__(
        self, path: Path, echo: Callable[[str], None] | None = None, *, file_bytes: int = _MAX_FILE_BYTES
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = RotatingFileHandler(
            path, maxBytes=file_bytes, backupCount=_MAX_OLD_FILES, encoding="utf-8", errors="replace"
        )
        if path.stat().st_size:
            self._file.doRollover()
        self._echo = echo
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines, oldest first."""
        return tuple(self._last)

    async def copy(self, descriptor: int) -> None:
        """Copy lines from a pipe to the log until all writers have closed the pipe; then close this end."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        tail = ""
        try:
            while chunk := await reader.read(_READ_BYTES):
                *lines, tail = (tail + decoder.decode(chunk)).split("\n")
                for line in lines:
                    self._write(line)
                if len(tail) > _MAX_LINE_CHARACTERS:
                    self._write(tail)
                    tail = ""
            if tail:
                self._write(tail)
        finally:
            transport.close()

    def _write(self, line: str) -> None:
        line = line.rstrip("\r")
        self._last.append(line)
        self._file.emit(logging.makeLogRecord({"msg": line}))
        if self._echo is not None:
            self._echo(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

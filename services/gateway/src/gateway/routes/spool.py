"""Stores JSON records until they are sent, on disk if they are large."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

_MAX_MEMORY_BYTES = 1024 * 1024
_PIECE_BYTES = 64 * 1024

Part = bytes | int
"""A part of a response: bytes, or the number of a record."""


class Spool:
    """JSON records to send later in any order.

    `send` and `close` delete the records. The context manager deletes them only if its block fails.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115  # closed in `close`
        self._starts = [0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.close()

    def add(self, record: bytes) -> None:
        """Append a record."""
        self._file.write(record)
        self._starts.append(self._starts[-1] + len(record))

    def length(self, parts: Sequence[Part]) -> int:
        """Return the number of bytes of all parts."""
        return sum(self._length(part) if isinstance(part, int) else len(part) for part in parts)

    async def send(self, parts: Sequence[Part]) -> AsyncIterator[bytes]:
        """Yield the parts in order, in pieces. Close the spool at the end."""
        try:
            piece = bytearray()
            for part in parts:
                if isinstance(part, int):
                    self._file.seek(self._starts[part])
                    piece += self._file.read(self._length(part))
                else:
                    piece += part
                if len(piece) >= _PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
            if piece:
                yield bytes(piece)
        finally:
            self.close()

    def close(self) -> None:
        """Delete all records."""
        self._file.close()

    def _length(self, number: int) -> int:
        return self._starts[number + 1] - self._starts[number]


def json_list(numbers: Sequence[int]) -> list[Part]:
    """Return the parts of a JSON array of records."""
    parts: list[Part] = [b"["]
    for position, number in enumerate(numbers):
        parts += (b",", number) if position else (number,)
    parts.append(b"]")
    return parts

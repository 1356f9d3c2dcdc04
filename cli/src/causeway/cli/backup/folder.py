"""The folder of a backup: files, and ``backup.json`` with their checksums.

``backup.json`` is written last. A folder without this file is an interrupted backup.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

from causeway.cli.errors import CommandError, UsageError
from pydantic import BaseModel, ConfigDict, ValidationError

NAME = "backup.json"
VERSION = 1
_KIND = "causeway-backup"
_PIECE_BYTES = 1024 * 1024


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Frozen):
    """A file of the backup, with its name in the folder."""

    file: str
    size: int
    sha256: str


class SavedStream(_Frozen):
    """A stream of JetStream, with the ``configuration`` and the ``state`` that the server reported."""

    name: str
    messages: int
    configuration: dict[str, Any]
    state: dict[str, Any]
    part: Part


class SavedIndex(_Frozen):
    """An index of the retriever, with the ``manifest`` of its snapshot."""

    tenant: str
    name: str
    manifest: str
    part: Part


class Contents(_Frozen):
    """The contents of ``backup.json``."""

    kind: str = _KIND
    version: int = VERSION
    created_at: datetime
    streams: list[SavedStream]
    indexes: list[SavedIndex]

    @property
    def parts(self) -> list[Part]:
        """Return all files except ``backup.json``."""
        return [stream.part for stream in self.streams] + [index.part for index in self.indexes]


class _Header(BaseModel):
    """The members of ``backup.json`` that all versions have; the other members are ignored."""

    kind: str = _KIND
    version: int = VERSION


class Folder:
    """A backup's folder.

    Args:
        path: The path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Create the folder with access only for its owner.

        Raises:
            UsageError: The folder is not empty, or cannot be created.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise UsageError(f"{self.path} is not empty; a backup needs its own folder")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be created: {error.strerror}") from error

    async def write(self, file: str, pieces: AsyncIterator[bytes]) -> Part:
        """Write a file in pieces and sync it.

        Raises:
            CommandError: The file cannot be written.
        """
        digest, size = hashlib.sha256(), 0

        def add(piece: bytes) -> None:
            digest.update(piece)
            opened.write(piece)

        try:
            with (self.path / file).open("xb") as opened:
                async for piece in pieces:
                    await asyncio.to_thread(add, piece)
                    size += len(piece)
                opened.flush()
                await asyncio.to_thread(os.fsync, opened.fileno())
        except OSError as error:
            raise CommandError(f"{self.path / file} cannot be written: {error.strerror}") from error
        return Part(file=file, size=size, sha256=digest.hexdigest())

    def end(self, contents: Contents) -> None:
        """Write ``backup.json``, which makes the backup complete.

        Raises:
            CommandError: The file cannot be written.
        """
        unfinished = self.path / f".{NAME}.new"
        try:
            with unfinished.open("xb") as file:
                file.write(contents.model_dump_json(indent=2).encode())
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path / NAME)
            for directory in (self.path, self.path.absolute().parent):
                descriptor = os.open(directory, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise CommandError(f"{self.path / NAME} cannot be written: {error.strerror}") from error

    def read(self) -> Contents:
        """Verify all files of the backup and return its contents.

        Raises:
            UsageError: The folder is not a complete backup, the backup has another version, or a file is damaged or
                missing.
        """
        try:
            content = (self.path / NAME).read_bytes()
            header = _Header.model_validate_json(content)
            if header.kind != _KIND:
                raise UsageError(
                    f"{self.path / NAME} is not from a backup: its kind is {header.kind!r}, not {_KIND!r}"
                )
            if header.version != VERSION:
                raise UsageError(
                    f"{self.path / NAME} has version {header.version}; this command reads only version {VERSION}"
                )
            contents = Contents.model_validate_json(content)
        except FileNotFoundError:
            raise UsageError(f"{self.path} contains no complete backup: {NAME} is missing") from None
        except (OSError, ValidationError) as error:
            raise UsageError(f"{self.path / NAME} cannot be read: {error}") from error
        for part in contents.parts:
            if Path(part.file).name != part.file:
                raise UsageError(f"{self.path / NAME} names a file outside the folder: {part.file!r}")
            try:
                with (self.path / part.file).open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UsageError(f"{self.path / part.file} cannot be read: {error.strerror}") from error
            if found != part.sha256:
                raise UsageError(f"{self.path / part.file} is damaged: its SHA-256 differs from {NAME}")
        return contents

    async def pieces(self, part: Part, length: int = _PIECE_BYTES) -> AsyncIterator[bytes]:
        """Yield a file in pieces of the given length."""
        with (self.path / part.file).open("rb") as file:
            while piece := await asyncio.to_thread(file.read, length):
                yield piece

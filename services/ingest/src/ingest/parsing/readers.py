"""Loads the modules of the formats, and with them the libraries of all formats."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from ingest.parsing.content import Part
from ingest.parsing.frames import Request
from ingest.parsing.registry import FORMATS


class Reader(Protocol):
    """The interface of a module of `ingest.parsing.formats`."""

    def parse(self, request: Request) -> Iterator[Part]:
        """Yield the head of a document, then its pages, and an `Omission` for each part that it cannot read.

        Raises:
            Refusal: The document cannot be read.
        """
        ...

    def recognises(self, path: Path, head: bytes) -> bool:
        """Return whether a file has this format by its content; ``head`` is its beginning.

        A module without this function reads text formats that only the file name tells apart.

        Raises:
            Refusal: The file is damaged.
        """
        ...


READERS = {
    each.module: cast("Reader", importlib.import_module(f"ingest.parsing.formats.{each.module}"))
    for each in FORMATS
}

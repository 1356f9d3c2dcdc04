"""Imports the modules of all formats, and the libraries that they use."""

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
        """Yield the parts of a document; see `ingest.parsing.content`.

        If no page has text, the worker refuses the document. A module needs a refusal of its own only to name the
        reason, for example a presentation whose slides are all hidden.

        Raises:
            Refusal: The document cannot be read.
        """
        ...

    def recognises(self, path: Path, head: bytes) -> bool:
        """Return whether the content of a file has this format; ``head`` is its beginning.

        A module lacks this function if only the file name can identify its format.

        Raises:
            Refusal: The file is damaged.
        """
        ...


READERS = {
    format_.module: cast("Reader", importlib.import_module(f"ingest.parsing.formats.{format_.module}"))
    for format_ in FORMATS
}

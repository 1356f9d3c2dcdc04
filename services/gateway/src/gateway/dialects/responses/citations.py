"""Converts citation marks ``[name]`` in an answer to annotations that name a file."""

from collections.abc import Iterable
from typing import Any

from servicekit import keys

from gateway.domain import Passage

_MAX_MARK_LENGTH = 400


Files = dict[str, dict[str, str]]
"""For each citation mark, the files that it names: the names of the files by their ids.

Documents of several indexes may have the same mark.
"""


def add_files(files: Files, passages: Iterable[Passage]) -> None:
    """Add the files of passages to the files that an answer can cite."""
    for passage in passages:
        files.setdefault(passage.sourcepage, {})[file_id(passage)] = passage.sourcefile


class Citations:
    """Finds citation marks in a text that arrives in pieces. A mark may be split over several pieces.

    Args:
        files: The files that the answer can cite.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._incomplete = ""
        self._length = 0

    def __bool__(self) -> bool:
        """Return whether a text can cite a file."""
        return bool(self._files)

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Append a piece of the text, and return the annotations of the marks that it completes.

        A mark has an annotation for each file that it names. ``index`` is the position of the mark's first
        character in the text.
        """
        if not self._files:
            return []
        if not self._incomplete and "[" not in text:
            # Most pieces contain no mark.
            self._length += len(text)
            return []
        begin, pending = self._length - len(self._incomplete), self._incomplete + text
        self._length += len(text)
        annotations = []
        at = pending.find("[")
        while at >= 0:
            end = pending.find("]", at)
            if end < 0:
                at = pending.rfind("[")
                break
            # A mark begins at the last opening bracket before its end.
            at = pending.rfind("[", at, end)
            # An annotation names only one file.
            annotations += [
                {"type": "file_citation", "file_id": identifier, "filename": name, "index": begin + at}
                for identifier, name in self._files.get(pending[at + 1 : end], {}).items()
            ]
            at = pending.find("[", end)
        self._incomplete = pending[at:] if at >= 0 and len(pending) - at <= _MAX_MARK_LENGTH else ""
        return annotations


def file_id(passage: Passage) -> str:
    """Return the file id of a passage's document. The id is deterministic."""
    return keys.file_id(passage.index, passage.document_id)

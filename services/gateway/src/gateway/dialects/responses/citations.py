"""Converts citation marks ``[name]`` in an answer to annotations that name a file."""

from collections.abc import Iterable, Mapping
from typing import Any

from servicekit import keys

from gateway.domain import Passage

_MAX_MARK_LENGTH = 400


Files = Mapping[str, tuple[str, str]]
"""The id and the name of a file, by the citation mark of a passage."""


def files_of(passages: Iterable[Passage]) -> dict[str, tuple[str, str]]:
    """Return the files of passages, by their citation marks."""
    return {each.sourcepage: (file_id(each), each.sourcefile) for each in passages}


class Citations:
    """Finds citation marks in a text that arrives in pieces. A mark may be split over several pieces.

    Args:
        files: The files that the answer can cite.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open = ""
        self._at = 0

    def __bool__(self) -> bool:
        """Return whether a text can cite a file."""
        return bool(self._files)

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Append a piece of the text, and return the annotations of the marks that it completes.

        ``index`` is the position of the mark's first character in the text.
        """
        if not self._files:
            return []
        if not self._open and "[" not in text:
            # Most pieces contain no mark.
            self._at += len(text)
            return []
        begin, pending = self._at - len(self._open), self._open + text
        self._at += len(text)
        annotations = []
        at = pending.find("[")
        while at >= 0:
            end = pending.find("]", at)
            if end < 0:
                at = pending.rfind("[")
                break
            # A mark begins at the last opening bracket before its end.
            at = pending.rfind("[", at, end)
            file = self._files.get(pending[at + 1 : end])
            if file is not None:
                annotations.append(
                    {"type": "file_citation", "file_id": file[0], "filename": file[1], "index": begin + at}
                )
            at = pending.find("[", end)
        self._open = pending[at:] if at >= 0 and len(pending) - at <= _MAX_MARK_LENGTH else ""
        return annotations


def file_id(passage: Passage) -> str:
    """Return the file id of a passage's document. The id is deterministic."""
    return keys.file_id(passage.index, passage.document_id)

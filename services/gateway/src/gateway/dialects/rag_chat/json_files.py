"""Files inside messages: ``{"files": [{"contentType", "data", "filename"}]}``, with the data in base64."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.rag_chat.multipart import MAX_PARTS, File

MAX_FILES = MAX_PARTS - 1
"""The maximum number of files of a request. A form has the same limit, because one of its parts is the JSON."""
_MAX_NAME_LENGTH = 200
_NAMES = ("filename", "name")


def parse(messages: Any, path: str) -> tuple[File, ...]:
    """Return the files of all messages, in order.

    Args:
        messages: The messages before validation. The function ignores invalid messages, which a later check
            refuses.
        path: The path of the messages in the request.

    Raises:
        InvalidRequest: A file is invalid, or there are too many; the error names the field.
    """
    files: list[File] = []
    for at, item in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(item, dict):
            continue
        message = Fields(item, f"{path}[{at}]")
        for number, raw_file in enumerate(_files_of(message)):
            if len(files) == MAX_FILES:
                raise message.invalid("files", f"has too many files: a request may have at most {MAX_FILES}")
            files.append(_file(raw_file, at, f"{message.path('files')}[{number}]"))
    return tuple(files)


def refuse(message: Fields) -> None:
    """Refuse files in stages that do not support them.

    Raises:
        InvalidRequest: The message has files.
    """
    if _files_of(message):
        raise message.invalid(
            "files", "are not supported in this protocol version. Use 2024-05-29, or upload documents to an index"
        )


def _files_of(message: Fields) -> Sequence[Any]:
    return message.items("files") or ()


def _file(raw_file: Any, at: int, path: str) -> File:
    if not isinstance(raw_file, dict):
        raise InvalidRequest(f"{path} must be an object with contentType and data.", field=path)
    file = Fields(raw_file, path)
    media = file.text("contentType")
    if not media:
        raise file.invalid("contentType", "must be a media type, like text/plain")
    if not isinstance(raw_file.get("data"), str):
        raise file.invalid("data", "must be the file's content in base64")
    try:
        content = base64.b64decode(file.text("data"), validate=True)
    except (binascii.Error, ValueError):
        raise file.invalid("data", "is not valid base64") from None
    name = next(filter(None, map(file.text, _NAMES)), path)
    return File(at, path, name[:_MAX_NAME_LENGTH], media.partition(";")[0].strip().lower(), content)

"""A document's fields as filters test them: pairs of a name and a scalar. A list has one pair for each item."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, PayloadTooLarge

from retriever.domain.document import Document
from retriever.domain.filter import METADATA_PREFIX, Field

MAX_METADATA_BYTES = 64 * 1024
TEXT_LANGUAGE = "text_language"
"""A field that only conditions of the retriever itself test. Filters of requests cannot name it."""
_MAX_ID_LENGTH = 512
_SHA256 = re.compile(r"[0-9a-f]{64}")


def fields_of(document: Document) -> list[Field]:
    """Return the fields of a document that conditions may test. A chunk also has its ``page``.

    Nested metadata have dotted paths. Items of a list have the path of the list. Null values are left out.
    """
    return [
        ("document_id", document.document_id),
        ("sourcefile", document.sourcefile),
        ("category", document.category),
        ("language", document.language),
        *([(TEXT_LANGUAGE, document.text_language)] if document.text_language else []),
        *_flatten(METADATA_PREFIX[:-1], msgspec.json.decode(document.metadata_json or b"{}")),
    ]


def _flatten(path: str, value: Any) -> Iterator[Field]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flatten(f"{path}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _flatten(path, item)
    elif value is not None:
        yield path, value


def check_document(document: Document) -> None:
    """Check a document before it is stored.

    Raises:
        InvalidRequest: A field is wrong.
    """
    if not document.document_id.strip() or len(document.document_id) > _MAX_ID_LENGTH:
        raise InvalidRequest(
            f"A document id has 1 to {_MAX_ID_LENGTH} characters and is not blank.", field="document.document_id"
        )
    if document.sha256 and not _SHA256.fullmatch(document.sha256):
        raise InvalidRequest("The SHA-256 must have 64 lower-case hexadecimal digits.", field="document.sha256")
    _check_metadata(document)


def _check_metadata(document: Document) -> None:
    field = "document.metadata_json"
    if len(document.metadata_json) > MAX_METADATA_BYTES:
        raise PayloadTooLarge(f"The metadata are longer than {MAX_METADATA_BYTES} bytes.", field=field)
    try:
        metadata = msgspec.json.decode(document.metadata_json or b"{}")
        if not isinstance(metadata, dict):
            raise InvalidRequest("The metadata are not a JSON object.", field=field)
        fields_of(document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The metadata are not JSON: {error}", field=field) from error
    except RecursionError as error:
        raise InvalidRequest("The metadata are nested too deeply.", field=field) from error

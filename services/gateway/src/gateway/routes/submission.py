"""Validates the body of ``POST /documents``: a form with files and URLs, or JSON with URLs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from fastapi import Request, UploadFile
from servicekit import keys
from servicekit.allowed_urls import AllowedUrls, document_name
from servicekit.errors import Cancelled, InvalidRequest, PayloadTooLarge, PermissionDenied
from starlette.requests import ClientDisconnect

from gateway.dialects.json_fields import Fields, members, value
from gateway.dialects.ragengine import documents as ragengine
from gateway.domain.documents import Upload
from gateway.routes.body import media_type_of, unsupported_media
from gateway.routes.uploads import file_names

_JSON = "application/json"
_FORM = "multipart/form-data"
_MAX_URLS = 1000
_MAX_JSON_BYTES = 1024 * 1024
_FIELDS = ("index", "urls", "category", "metadata", "oids", "groups", "pictures")

JSON_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["index", "urls"],
    "additionalProperties": False,
    "properties": {
        "index": {"type": "string", "description": "Index to write to; created if it does not exist"},
        "urls": {
            "type": "array",
            "items": {"type": "string", "maxLength": 512},
            "minItems": 1,
            "maxItems": _MAX_URLS,
            "description": "http or https URLs on the hosts that the operator allows",
        },
        "category": {"type": "string"},
        "metadata": {"type": "object", "description": "Stored with each document, together with its `url`"},
        "oids": {"type": "array", "items": {"type": "string"}},
        "groups": {"type": "array", "items": {"type": "string"}},
        "pictures": {"type": "boolean"},
    },
}


@dataclass(frozen=True, slots=True)
class Submission:
    """The documents of a request.

    Attributes:
        uploads: One upload for each document. The uploads of files have no content yet.
        files: The files in the same order. None for a URL.
    """

    uploads: tuple[Upload, ...]
    files: tuple[UploadFile | None, ...]

    async def read(self, position: int) -> Upload:
        """Return an upload with its content."""
        upload, file = self.uploads[position], self.files[position]
        return upload if file is None else replace(upload, content=await file.read())


def media_type(request: Request) -> str:
    """Check and return the media type of the body. FastAPI calls this as a dependency of the route.

    Raises:
        UnsupportedMedia: The body is neither a multipart form nor JSON.
    """
    media = media_type_of(request.headers)
    if media not in (_FORM, _JSON):
        raise unsupported_media(f"{_FORM} or {_JSON}", media)
    return media


def is_json(request: Request) -> bool:
    """Return whether the body is JSON."""
    return media_type(request) == _JSON


def parse_form(
    allowed: AllowedUrls, common: Upload, files: Sequence[UploadFile], urls: Sequence[str]
) -> Submission:
    """Return the documents of a form.

    Args:
        allowed: The hosts from which documents may be fetched.
        common: An upload with the fields that all documents share.
        files: The files of the form.
        urls: The URLs of the form.

    Raises:
        InvalidRequest: A field, a file or a URL is invalid, or the form has neither a file nor a URL.
        PermissionDenied: One of the URLs may not be fetched.
    """
    keys.index_name(common.index)
    linked = _url_uploads(allowed, common, urls, "url")
    if not files and not linked:
        raise InvalidRequest("The form must have a file or a URL.", field="file")
    named = [replace(common, sourcefile=name) for name in file_names(files)]
    duplicates = {upload.sourcefile for upload in named} & {upload.sourcefile for upload in linked}
    if duplicates:
        name = min(duplicates)
        raise InvalidRequest(f"A file and a URL have the same name {name!r}. Rename the file.", field="url")
    return Submission((*named, *linked), (*files, *(None for _ in linked)))


async def parse_json(allowed: AllowedUrls, request: Request) -> Submission:
    """Return the documents of a JSON body.

    Raises:
        InvalidRequest: A field is invalid, or the list of URLs is empty.
        PermissionDenied: One of the URLs may not be fetched.
        PayloadTooLarge: The body is larger than 1 MiB.
        Cancelled: The client left.
    """
    raw = members(await _body(request))
    unknown = sorted(set(raw) - set(_FIELDS))
    if unknown:
        raise InvalidRequest(f"The field '{unknown[0][:100]}' does not exist.", field=unknown[0][:100])
    fields = Fields({name: value(raw.get(name), name) for name in _FIELDS if name != "metadata"})
    metadata = raw.get("metadata")
    common = Upload(
        index=keys.index_name(fields.text("index")),
        sourcefile="",
        content=b"",
        category=fields.text("category"),
        metadata_json=b"{}" if metadata is None else ragengine.metadata(metadata, "metadata"),
        oids=fields.texts("oids"),
        groups=fields.texts("groups"),
        pictures=fields.flag("pictures"),
    )
    linked = _url_uploads(allowed, common, fields.texts("urls"), "urls")
    if not linked:
        raise InvalidRequest("The list of URLs is empty.", field="urls")
    return Submission(tuple(linked), (None,) * len(linked))


def parse_metadata(text: str) -> bytes:
    """Return the metadata in the text of a form's field.

    Raises:
        InvalidRequest: The text is not a JSON object.
    """
    if not text.strip():
        return b"{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise InvalidRequest("metadata must be a JSON object.", field="metadata") from None
    return ragengine.metadata(msgspec.Raw(text.encode()), "metadata")


def _url_uploads(allowed: AllowedUrls, common: Upload, urls: Sequence[str], field: str) -> list[Upload]:
    if not urls:
        return []
    if not allowed.has_hosts:
        raise PermissionDenied(
            "This platform fetches no documents from URLs, because its operator allows no hosts.", field=field
        )
    if len(urls) > _MAX_URLS:
        raise InvalidRequest(f"A request may have at most {_MAX_URLS} URLs.", field=field)
    linked: dict[str, Upload] = {}
    for position, requested in enumerate(urls):
        url = allowed.checked(requested, f"{field}[{position}]")
        name = document_name(url)
        if linked.setdefault(name, replace(common, sourcefile=name, url=url)).url != url:
            raise InvalidRequest(f"Two URLs have the same name {name!r}. Send only one of them.", field=field)
    return list(linked.values())


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_JSON_BYTES:
                raise PayloadTooLarge(f"A JSON body with URLs may have at most {_MAX_JSON_BYTES} bytes.")
    except ClientDisconnect:
        raise Cancelled("The client left.") from None
    return bytes(body)

"""The names of documents: ids for tools, URIs of resources, and web addresses."""

from urllib.parse import quote, unquote, urlsplit

import msgspec
from servicekit import keys
from servicekit.errors import InvalidRequest

SCHEME = "causeway"
TEMPLATE = SCHEME + "://{index}/{document}{?offset,length,first_page,last_page}"

_NUMBERS = ("offset", "length", "first_page", "last_page")
_MAX_DIGITS = 15
_metadata = msgspec.json.Decoder(dict[str, object])


def document_name(index: str, document_id: str) -> str:
    """Return the id of a document, which includes its index.

    >>> document_name("handbook", "a/b.pdf")
    'handbook/a/b.pdf'
    """
    return f"{index}/{document_id}"


def parse_name(name: str, field: str) -> tuple[str, str]:
    """Return the index and the document of an id.

    Raises:
        InvalidRequest: The text is not the id of a search result.
    """
    index, _, document_id = name.partition("/")
    message = f"{field} must be the id of a search result: an index, a slash and the id of a document."
    invalid = InvalidRequest(message, field=field)
    if not document_id:
        raise invalid
    try:
        return keys.index_name(index), document_id
    except InvalidRequest:
        raise invalid from None


def uri(index: str, document_id: str) -> str:
    """Return the URI of a document's text.

    >>> uri("handbook", "a/b c.pdf")
    'causeway://handbook/a%2Fb%20c.pdf'
    """
    return f"{SCHEME}://{index}/{quote(document_id, safe='')}"


def parse_uri(text: str) -> tuple[str, dict[str, int]]:
    """Return the id and the numbers of a resource's URI.

    Raises:
        InvalidRequest: The URI does not match the template.

    >>> parse_uri("causeway://handbook/a%2Fb%20c.pdf?offset=10")
    ('handbook/a/b c.pdf', {'offset': 10})
    """
    invalid = InvalidRequest(f"The URI must be of the template {TEMPLATE}.", field="uri")
    try:
        parts = urlsplit(text)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        raise invalid from None
    if parts.scheme != SCHEME or not parts.netloc or len(path) < 2 or parts.fragment:
        raise invalid
    numbers: dict[str, int] = {}
    for member in filter(None, parts.query.split("&")):
        name, _, value = member.partition("=")
        if name not in _NUMBERS or not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
            raise invalid
        numbers[name] = int(value)
    # A URI's host is case-insensitive; names of indexes are not.
    index = text[len(SCHEME) + 3 :].partition("/")[0]
    return index + path, numbers


def url(base_url: str, index: str, sourcefile: str, metadata_json: bytes, page: int = 0) -> str:
    """Return the address of a document: its source URL, or else the gateway's address of the original.

    The address has no signature: the gateway checks the caller.
    """
    source_url = metadata(metadata_json).get("url")
    fragment = f"#page={page}" if page else ""
    if isinstance(source_url, str) and source_url.startswith(("https://", "http://")):
        return source_url + ("" if "#" in source_url else fragment)
    return f"{base_url}/content/{quote(sourcefile)}?index={quote(index)}{fragment}"


def metadata(metadata_json: bytes) -> dict[str, object]:
    """Return a document's metadata."""
    return _metadata.decode(metadata_json or b"{}")

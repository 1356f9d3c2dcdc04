"""The credential of a request, in any header that clients use for it."""

from collections.abc import Iterable

from servicekit.errors import Unauthenticated

HEADERS = ("authorization", "api-key", "x-api-key")
"""``Authorization: Bearer`` (RFC 6750; OpenAI's clients), ``api-key`` (Azure's), ``x-api-key`` (many others)."""

_AUTHORIZATION, *_BARE = (name.encode() for name in HEADERS)
_SCHEME = b"bearer"


def credential(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the key or token of a request.

    An ``Authorization`` without a space has no scheme and is the key itself.

    Raises:
        Unauthenticated: The request has no credential, or several different ones.
    """
    found = ""
    for name, value in headers:
        if name == _AUTHORIZATION:
            scheme, space, sent = value.strip().partition(b" ")
            if not space and scheme.lower() != _SCHEME:
                # Azure's inference client sends its key here and as `api-key`.
                sent = scheme
            elif scheme.lower() != _SCHEME:
                raise Unauthenticated("Authorization must have the scheme Bearer.", field="authorization")
        elif name in _BARE:
            sent = value
        else:
            continue
        text = sent.decode("latin-1").strip()
        if found and text != found:
            raise Unauthenticated("The request carries different credentials; send one.", field="authorization")
        found = text
    if not found:
        raise Unauthenticated(
            "Send a credential: 'Authorization: Bearer …', or 'api-key: …'.", field="authorization"
        )
    return found

"""Reads the credential of a request from the headers that clients use."""

from collections.abc import Iterable

from servicekit.errors import Unauthenticated

HEADERS = ("authorization", "api-key", "x-api-key")
"""``Authorization: Bearer`` (RFC 6750; OpenAI's clients), ``api-key`` (Azure's), ``x-api-key`` (many others)."""

_AUTHORIZATION, *_BARE = (name.encode() for name in HEADERS)
_SCHEME = b"bearer"


def credential_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the key or token of a request.

    If the value of an ``Authorization`` header contains no space, it has no scheme, and the whole value is the key.

    Raises:
        Unauthenticated: The request has no credential, or has different credentials.
    """
    credential = ""
    for name, value in headers:
        if name == _AUTHORIZATION:
            scheme, space, raw = value.strip().partition(b" ")
            if not space and scheme.lower() != _SCHEME:
                # Azure's inference client sends its key here and as `api-key`.
                raw = scheme
            elif scheme.lower() != _SCHEME:
                raise Unauthenticated("The header Authorization must use the scheme Bearer.", field="authorization")
        elif name in _BARE:
            raw = value
        else:
            continue
        text = raw.decode("latin-1").strip()
        if credential and text != credential:
            raise Unauthenticated(
                "The request has different credentials in its headers. Send only one.", field="authorization"
            )
        credential = text
    if not credential:
        raise Unauthenticated(
            "Send a credential: 'Authorization: Bearer …', or 'api-key: …'.", field="authorization"
        )
    return credential

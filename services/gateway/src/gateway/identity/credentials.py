"""The credential that a request carries, whichever header its client puts it into."""

from collections.abc import Iterable

from servicekit.errors import Unauthenticated

HEADERS = ("authorization", "api-key", "x-api-key")
"""``Authorization: Bearer`` (RFC 6750; OpenAI's clients), ``api-key`` (Azure's), ``x-api-key`` (many others)."""

_AUTHORIZATION, *_BARE = (name.encode() for name in HEADERS)
_SCHEME = b"bearer "


def credential(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The key or token of a request.

    Raises:
        Unauthenticated: There is none, or there are several different ones.
    """
    found = ""
    for name, value in headers:
        if name == _AUTHORIZATION:
            if value[: len(_SCHEME)].lower() != _SCHEME:
                raise Unauthenticated("Authorization must be of the scheme Bearer.", field="authorization")
            said = value[len(_SCHEME) :]
        elif name in _BARE:
            said = value
        else:
            continue
        text = said.decode("latin-1").strip()
        if found and text != found:
            raise Unauthenticated("The request carries different credentials; send one.", field="authorization")
        found = text
    if not found:
        raise Unauthenticated(
            "Credentials are needed: send 'Authorization: Bearer …', or 'api-key: …'.", field="authorization"
        )
    return found

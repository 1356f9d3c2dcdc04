"""Reads the configuration of an OpenID Connect provider.

Source: OpenID Connect Discovery 1.0, 3 and 4.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.identity.settings import is_safe

Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches the body at an address; raises `OSError` on failure."""


async def provider_url(issuer: str, fetch: Fetch, member: str) -> str:
    """Return a URL that the configuration of a provider contains.

    Args:
        issuer: The URL of the provider.
        fetch: Fetches the configuration.
        member: The member of the configuration, for example ``jwks_uri``.

    Raises:
        OSError: The configuration cannot be fetched.
        ValueError: The configuration is invalid, names another issuer, or has no URL under this name that `is_safe`
            accepts.
    """
    found = json_object(await fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
    if found.get("issuer") != issuer:
        raise ValueError("the provider's configuration names another issuer")
    url = found.get(member)
    if not isinstance(url, str) or not is_safe(url):
        raise ValueError(f"the provider's configuration has no https URL as {member}")
    return url


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        ValueError: The body is not a JSON object.
    """
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("the response is not a JSON object")  # noqa: TRY004  # the value is content, not an argument
    return found

"""Constructs the token verifier of OpenID Connect.

The gateway imports this module only if it accepts tokens, because the libraries for tokens and HTTP are large.
"""

import contextlib
from collections.abc import AsyncIterator

import httpx2

from gateway.identity.provider_keys import ProviderKeys
from gateway.identity.settings import IdentitySettings
from gateway.identity.tokens import Claims, Tokens

_TIMEOUT_SECONDS = 5.0
"""The time limit of each step of a request (connecting, sending, receiving)."""
_MAX_BYTES = 1024 * 1024


@contextlib.asynccontextmanager
async def tokens(settings: IdentitySettings, resources: str = "") -> AsyncIterator[Tokens]:
    """Provide the token verifier for the issuer of the settings.

    Args:
        settings: The settings.
        resources: The prefix of protected resources, as in `Tokens`.
    """
    claims = Claims(
        user=settings.oidc_user_claim,
        oids=settings.oidc_oids_claim,
        groups=settings.oidc_groups_claim,
        tenant=settings.oidc_tenant_claim,
        roles=settings.oidc_roles_claim,
        profiles=settings.oidc_profiles_claim,
        default_tenant=settings.oidc_tenant,
        default_roles=settings.oidc_default_roles,
        role_names=settings.oidc_role_names,
        former_names=settings.users_with_former_names,
    )
    issuer, algorithms = settings.oidc_issuer, settings.oidc_algorithms
    # The environment's proxy is used only for providers on other machines.
    remote = issuer.startswith("https:")
    async with (
        httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=remote) as http,
        contextlib.AsyncExitStack() as stack,
    ):
        keys = ProviderKeys(issuer, lambda url: fetch(http, url), algorithms, jwks_url=settings.oidc_jwks_url)
        stack.push_async_callback(keys.close)
        yield Tokens(
            keys,
            issuer,
            settings.oidc_audience,
            algorithms,
            claims,
            resources=resources,
            leeway=settings.oidc_leeway,
        )


async def fetch(http: httpx2.AsyncClient, url: str) -> bytes:
    """Fetch the body at an address. This function follows no redirects and accepts at most 1 MiB.

    Raises:
        OSError: The server does not respond in time, the status is not 200, or the body is too long.
    """
    try:
        async with http.stream("GET", url) as response:
            if response.status_code != 200:
                raise OSError(f"the response has the status {response.status_code}")
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MAX_BYTES:
                    raise OSError("the response has more than 1 MiB")
            return body
    except httpx2.HTTPError as error:
        raise OSError(str(error) or type(error).__name__) from error


async def fetch_with_new_client(url: str) -> bytes:
    """Call `fetch` with a new connection."""
    async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=url.startswith("https:")) as http:
        return await fetch(http, url)

"""The origins where a page signs users in, from the provider's configuration."""

import json
from typing import Any

import pytest
from gateway.identity.provider_origins import ProviderOrigins

ISSUER = "https://login.example.org/realm"
ELSEWHERE = "https://tokens.example.org:8443/oauth/token"


class Provider:
    """A provider that responds with its configuration, or fails."""

    def __init__(self) -> None:
        self.configuration: dict[str, Any] | None = {"issuer": ISSUER, "token_endpoint": ELSEWHERE}
        self.requested_urls: list[str] = []
        self.now = 0.0

    async def fetch(self, url: str) -> bytes:
        self.requested_urls.append(url)
        if self.configuration is None:
            raise OSError("the provider is down")
        return json.dumps(self.configuration).encode()

    def origins(self) -> ProviderOrigins:
        return ProviderOrigins(ISSUER, self.fetch, clock=lambda: self.now)


async def test_the_token_endpoint_can_have_another_origin() -> None:
    """The origins include the token endpoint. The configuration is fetched once in ten minutes."""
    provider = Provider()
    origins = provider.origins()
    assert await origins() == ("https://login.example.org", "https://tokens.example.org:8443")
    provider.now = 599
    await origins()
    assert provider.requested_urls == [f"{ISSUER}/.well-known/openid-configuration"]
    provider.now, provider.configuration = 601, {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token"}
    assert await origins() == ("https://login.example.org",)


async def test_known_origins_survive_an_outage() -> None:
    """At first, the issuer's origin is returned, and later the known ones.

    After some seconds, the provider is called again.
    """
    provider = Provider()
    known, provider.configuration = provider.configuration, None
    origins = provider.origins()
    assert await origins() == ("https://login.example.org",)
    provider.configuration = known
    assert await origins() == ("https://login.example.org",)
    provider.now = 11
    assert len(await origins()) == 2
    provider.now, provider.configuration = 1000, None
    assert len(await origins()) == 2


@pytest.mark.parametrize(
    "configuration",
    [
        {"issuer": "https://other.example.org", "token_endpoint": ELSEWHERE},
        {"issuer": ISSUER, "token_endpoint": "http://tokens.example.org/token"},
        {"issuer": ISSUER, "token_endpoint": "https:"},
        {"issuer": ISSUER, "token_endpoint": 7},
        {"issuer": ISSUER},
        {"token_endpoint": ELSEWHERE},
    ],
    ids=lambda configuration: "-".join(map(str, configuration.values())),
)
async def test_a_configuration_that_cannot_be_trusted(configuration: dict[str, Any]) -> None:
    """With a configuration of another issuer, or without a safe endpoint, only the issuer's origin is returned."""
    provider = Provider()
    provider.configuration = configuration
    assert await provider.origins()() == ("https://login.example.org",)

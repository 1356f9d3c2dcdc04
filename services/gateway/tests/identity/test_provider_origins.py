"""Where a page signs users in, as the provider's configuration says it."""

import json
from typing import Any

import pytest
from gateway.identity.provider_origins import ProviderOrigins

ISSUER = "https://login.example.org/realm"
ELSEWHERE = "https://tokens.example.org:8443/oauth/token"


class Provider:
    """Answers with a configuration, or not at all."""

    def __init__(self) -> None:
        self.configuration: dict[str, Any] | None = {"issuer": ISSUER, "token_endpoint": ELSEWHERE}
        self.asked: list[str] = []
        self.now = 0.0

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.configuration is None:
            raise OSError("it is away")
        return json.dumps(self.configuration).encode()

    def origins(self) -> ProviderOrigins:
        return ProviderOrigins(ISSUER, self.fetch, clock=lambda: self.now)


async def test_the_token_endpoint_may_be_elsewhere() -> None:
    """It is asked for once in ten minutes."""
    provider = Provider()
    origins = provider.origins()
    assert await origins() == ("https://login.example.org", "https://tokens.example.org:8443")
    provider.now = 599
    await origins()
    assert provider.asked == [f"{ISSUER}/.well-known/openid-configuration"]
    provider.now, provider.configuration = 601, {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token"}
    assert await origins() == ("https://login.example.org",)


async def test_while_the_provider_is_away_the_page_has_what_was_known() -> None:
    """At first the issuer's own origin; it is asked again after some seconds."""
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
    "said",
    [
        {"issuer": "https://other.example.org", "token_endpoint": ELSEWHERE},
        {"issuer": ISSUER, "token_endpoint": "http://tokens.example.org/token"},
        {"issuer": ISSUER, "token_endpoint": "https:"},
        {"issuer": ISSUER, "token_endpoint": 7},
        {"issuer": ISSUER},
        {"token_endpoint": ELSEWHERE},
    ],
    ids=lambda each: "-".join(map(str, each.values())),
)
async def test_a_configuration_that_cannot_be_trusted(said: dict[str, Any]) -> None:
    """Of another issuer, or without a safe address: the page speaks to the issuer alone."""
    provider = Provider()
    provider.configuration = said
    assert await provider.origins()() == ("https://login.example.org",)

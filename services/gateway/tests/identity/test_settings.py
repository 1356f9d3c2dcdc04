from typing import Any

import pytest
from gateway.settings import Settings
from pydantic import ValidationError

OIDC: dict[str, Any] = {"oidc_issuer": "https://id.example.com", "oidc_audience": ["causeway"]}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_authentication(host: str) -> None:
    """On a loopback address, the default is no authentication, because all callers are on this machine."""
    assert Settings(host=host).auth == "none"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "192.168.1.1", "gateway.example.com", "", "0"])
def test_other_addresses_require_authentication(host: str) -> None:
    """The message names the setting and its values."""
    with pytest.raises(ValidationError, match=r"does not listen on .*set this to keys, oidc") as caught:
        Settings(host=host)
    assert [error["loc"] for error in caught.value.errors()] == [("auth",)]
    assert Settings(host=host, auth="keys").accepts_keys


@pytest.mark.parametrize("auth", ["oidc", "keys,oidc"])
@pytest.mark.parametrize("missing", ["oidc_issuer", "oidc_audience"])
def test_tokens_need_an_issuer_and_an_audience(auth: str, missing: str) -> None:
    """The settings are refused without an issuer and an audience, because foreign tokens would be accepted."""
    settings = Settings(auth=auth, **OIDC)
    assert settings.accepts_tokens
    assert settings.accepts_keys == ("keys" in auth)
    with pytest.raises(ValidationError, match="CAUSEWAY_OIDC_ISSUER and CAUSEWAY_OIDC_AUDIENCE"):
        Settings(auth=auth, **{name: value for name, value in OIDC.items() if name != missing})


@pytest.mark.parametrize(
    "url", ["http://id.example.com", "ftp://id.example.com", "id.example.com", "https://", "file:///k"]
)
def test_addresses_of_the_provider_use_https(url: str) -> None:
    """The provider's addresses use https, or are on this machine."""
    for name in ("oidc_issuer", "oidc_jwks_url"):
        with pytest.raises(ValidationError, match="https URL"):
            Settings.model_validate({name: url})
        Settings.model_validate({name: "http://127.0.0.1:8000/realm"})


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], [], ["RS256", "HS512"]])
def test_algorithms_have_public_keys(algorithms: Any) -> None:
    """Algorithms with a shared key are refused, because a verifier could also sign tokens."""
    with pytest.raises(ValidationError):
        Settings(oidc_algorithms=algorithms)


def test_unknown_roles_are_refused() -> None:
    """A misspelt role is refused at the start."""
    Settings(oidc_role_names={"Readers": "ask"}, oidc_default_roles=["ask"])
    with pytest.raises(ValidationError):
        Settings(oidc_role_names={"Readers": "asks"})
    with pytest.raises(ValidationError):
        Settings(oidc_default_roles=["root"])


def test_with_api_keys_former_names_must_be_listed() -> None:
    """Without API keys all users of tokens keep their former names; with API keys each one must be listed."""
    oidc: dict[str, Any] = {"oidc_issuer": "https://a.example", "oidc_audience": ["c"]}
    assert Settings(auth="oidc", **oidc).users_with_former_names == {"*"}
    assert Settings(auth="keys,oidc", **oidc).users_with_former_names == frozenset()
    named = Settings(auth="keys,oidc", oidc_former_names=["ann"], **oidc)
    assert named.users_with_former_names == {"ann"}
    with pytest.raises(ValidationError, match="one by one"):
        Settings(auth="keys,oidc", oidc_former_names=["*"], **oidc)

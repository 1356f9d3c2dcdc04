"""The settings of authentication."""

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from servicekit.settings import ServiceSettings

ALL = "*"
Role = Literal["ask", "ingest", "admin"]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
"""Only algorithms with public keys: a verifier with a shared key could also create tokens."""


class IdentitySettings(ServiceSettings):
    """The settings of authentication."""

    metrics_open: bool = Field(
        False, description="Whether /metrics is public. If not, it needs the credential of an administrator."
    )
    allowed_hosts: list[Annotated[str, AfterValidator(str.lower)]] = Field(
        [],
        description="Hosts that the gateway accepts in requests without authentication (CAUSEWAY_AUTH=none), as a "
        "JSON array, with or without a port: `causeway.internal`. It always accepts loopback and profiles' hosts.",
    )
    oidc_issuer: str = Field(
        "", description="Issuer URL of the OpenID Connect provider whose tokens the gateway accepts."
    )
    oidc_audience: list[str] = Field(
        [],
        description="Accepted audiences, as a JSON array: usually the client id of the API at the provider "
        "(docs/security.md). The claim `aud` of a token must contain one of them. With CAUSEWAY_PUBLIC_URL, "
        "the address of an /mcp endpoint also suffices there (docs/mcp.md). Required if CAUSEWAY_AUTH contains "
        "`oidc`.",
    )
    oidc_algorithms: list[Algorithm] = Field(
        ["RS256", "ES256"], min_length=1, description="Accepted algorithms of a token's signature, as a JSON array."
    )
    oidc_jwks_url: str = Field(
        "", description="Address of the provider's keys. Empty: from the provider's configuration."
    )
    oidc_leeway: float = Field(
        30.0, ge=0, le=300, description="Accepted difference of the provider's clock, in seconds."
    )
    oidc_user_claim: str = Field("sub", min_length=1, description="Claim that names the user.")
    oidc_oids_claim: str = Field(
        "oid", description="Claim with the ids for `oids` of access lists. If it is missing, the user is the id."
    )
    oidc_groups_claim: str = Field("groups", description="Claim with the groups for `groups` of access lists.")
    oidc_tenant_claim: str = Field(
        "", description="Claim that names the tenant. Empty: all tokens have the same tenant."
    )
    oidc_tenant: str = Field(
        "local", min_length=1, description="Tenant of all tokens, if CAUSEWAY_OIDC_TENANT_CLAIM is empty."
    )
    oidc_roles_claim: str = Field("roles", description="Claim with the roles: a list, or words in one text.")
    oidc_role_names: dict[str, Role] = Field(
        {},
        description="Map from the provider's role names to the platform's, as JSON. The platform's own names are "
        "always valid.",
    )
    oidc_default_roles: list[Role] = Field(
        [], description="Roles that every token has in addition to its claim, as a JSON array."
    )
    oidc_profiles_claim: str = Field(
        "", description="Claim with the front end profiles for which a token is valid. Empty: all."
    )
    oidc_former_names: list[str] | None = Field(
        None,
        description="Users, as a JSON array of values of the user claim. They own the uploads and conversations "
        "that earlier versions stored under this name without the issuer. `*`: all. List only users whose name "
        "no API key has ever had. Default: all with CAUSEWAY_AUTH=oidc, none with keys,oidc.",
    )
    oidc_client_id: str = Field(
        "", description="Client id for the sign-in of front ends (/auth_setup). Empty: no sign-in."
    )
    oidc_scopes: list[str] = Field([], description="Scopes that front ends request for tokens, as a JSON array.")
    # This field is last, because its validator reads the other fields.
    auth: Literal["none", "keys", "oidc", "keys,oidc"] = Field(
        "none",
        validate_default=True,
        description="Authentication (docs/security.md): none (only on loopback), keys, oidc, or keys,oidc.",
    )

    @property
    def accepts_keys(self) -> bool:
        """Return whether API keys are accepted."""
        return "keys" in self.auth

    @property
    def accepts_tokens(self) -> bool:
        """Return whether OpenID Connect tokens are accepted."""
        return "oidc" in self.auth

    @property
    def users_with_former_names(self) -> frozenset[str]:
        """Return the users who own data that is stored under the bare user name."""
        if self.oidc_former_names is not None:
            return frozenset(self.oidc_former_names)
        return frozenset() if self.accepts_keys else frozenset({ALL})

    @field_validator("oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and (not is_safe(url) or any(map(str.isspace, url))):
            raise ValueError("it must be an https URL, or an http URL with a loopback host")
        return url

    @field_validator("auth")
    @classmethod
    def _check_auth(cls, auth: str, info: ValidationInfo) -> str:
        settings = info.data
        if auth == "none" and "host" in settings and not _is_loopback(settings["host"]):
            raise ValueError(
                f"the gateway does not listen on {settings['host']} (CAUSEWAY_HOST) without authentication; "
                "set this to keys, oidc or keys,oidc (docs/security.md), or listen on 127.0.0.1"
            )
        if "oidc" in auth and not (settings.get("oidc_issuer") and settings.get("oidc_audience")):
            raise ValueError("oidc needs CAUSEWAY_OIDC_ISSUER and CAUSEWAY_OIDC_AUDIENCE")
        if auth == "keys,oidc" and ALL in (settings.get("oidc_former_names") or ()):
            raise ValueError(
                "with API keys, CAUSEWAY_OIDC_FORMER_NAMES must list the users one by one: a key may have had the "
                "name of any other user (docs/security.md)"
            )
        return auth


def is_safe(url: str) -> bool:
    """Return whether the connection to an address is trusted: https, or a server on this machine."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    return bool(parts.hostname) and (parts.scheme == "https" or local)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""The settings of authentication."""

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from servicekit.settings import ServiceSettings

ALL = "*"
Role = Literal["ask", "ingest", "admin"]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
"""Public-key algorithms only: a verifier with a shared key could also make tokens."""


class IdentitySettings(ServiceSettings):
    """The settings of authentication."""

    metrics_open: bool = Field(
        False, description="Whether /metrics needs no credentials; else it needs an administrator's."
    )
    allowed_hosts: list[Annotated[str, AfterValidator(str.lower)]] = Field(
        [],
        description="Hosts that requests may name without authentication (CAUSEWAY_AUTH=none), as JSON: "
        "`causeway.internal`, also with a port; in addition to loopback and the hosts of front end profiles.",
    )
    oidc_issuer: str = Field("", description="OpenID Connect provider whose tokens are accepted: its issuer's URL.")
    oidc_audience: list[str] = Field([], description="Audiences, as JSON; a token must be for one of them.")
    oidc_algorithms: list[Algorithm] = Field(
        ["RS256", "ES256"], min_length=1, description="Algorithms that may sign a token, as JSON."
    )
    oidc_jwks_url: str = Field("", description="Address of the provider's keys; empty: from its configuration.")
    oidc_leeway: float = Field(30.0, ge=0, le=300, description="Seconds that the provider's clock may differ.")
    oidc_user_claim: str = Field("sub", min_length=1, description="Claim that names the user.")
    oidc_oids_claim: str = Field(
        "oid", description="Claim with the ids for `oids` of access lists; if it is missing, the user's."
    )
    oidc_groups_claim: str = Field("groups", description="Claim with the groups for `groups` of access lists.")
    oidc_tenant_claim: str = Field("", description="Claim that names the tenant; empty: all tokens have the same.")
    oidc_tenant: str = Field("local", min_length=1, description="Tenant of all tokens, if no claim names it.")
    oidc_roles_claim: str = Field("roles", description="Claim with the roles: a list, or words in one text.")
    oidc_role_names: dict[str, Role] = Field(
        {}, description="Map from the provider's names of roles to ours, as JSON; our names are always understood."
    )
    oidc_default_roles: list[Role] = Field([], description="Roles of every token in addition to its own, as JSON.")
    oidc_profiles_claim: str = Field(
        "", description="Claim with the front end profiles for which a token is valid; empty: all."
    )
    oidc_former_names: list[str] | None = Field(
        None,
        description="Users of the provider, by the user claim, who keep the uploads and conversations that earlier "
        "versions stored under this bare name, as JSON; `*`: all. No API key may have had such a user. Default: "
        "all with CAUSEWAY_AUTH=oidc, none with keys,oidc.",
    )
    oidc_client_id: str = Field(
        "", description="Client id with which front ends sign their users in (/auth_setup); empty: no sign-in."
    )
    oidc_scopes: list[str] = Field([], description="Scopes that front ends request for tokens, as JSON.")
    # After the settings that its validator reads.
    auth: Literal["none", "keys", "oidc", "keys,oidc"] = Field(
        "none",
        validate_default=True,
        description="Authentication (docs/security.md): none (any caller, on loopback only), keys, oidc, or both.",
    )

    @property
    def takes_keys(self) -> bool:
        """Return whether API keys are accepted."""
        return "keys" in self.auth

    @property
    def takes_tokens(self) -> bool:
        """Return whether OpenID Connect tokens are accepted."""
        return "oidc" in self.auth

    @property
    def users_with_former_names(self) -> frozenset[str]:
        """Return the users who keep what is stored under their bare names."""
        if self.oidc_former_names is not None:
            return frozenset(self.oidc_former_names)
        return frozenset() if self.takes_keys else frozenset({ALL})

    @field_validator("oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _safe(cls, url: str) -> str:
        if url and (not is_safe(url) or any(map(str.isspace, url))):
            raise ValueError("it must be an https URL, or an http URL of this machine")
        return url

    @field_validator("auth")
    @classmethod
    def _possible(cls, auth: str, info: ValidationInfo) -> str:
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
    """Return whether an address is authentic: it uses https, or the server is on this machine."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    return bool(parts.hostname) and (parts.scheme == "https" or local)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

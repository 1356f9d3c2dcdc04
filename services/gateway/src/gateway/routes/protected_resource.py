"""Which provider's tokens the protected resources take (OAuth 2.0 Protected Resource Metadata, RFC 9728)."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from servicekit.errors import NotFound

from gateway.dialects.mcp.registration import PATH
from gateway.frontends.profiles import FrontendsNow
from gateway.routes.body import json_answer
from gateway.routes.schemas import answers
from gateway.server.public_address import METADATA, PublicAddress

_DOCUMENT = {
    "type": "object",
    "properties": {
        "resource": {"type": "string"},
        "authorization_servers": {"type": "array", "items": {"type": "string"}},
        "bearer_methods_supported": {"type": "array", "items": {"type": "string"}},
        "scopes_supported": {"type": "array", "items": {"type": "string"}},
        "resource_name": {"type": "string"},
    },
}


@dataclass(frozen=True, slots=True)
class Provider:
    """Who issues the tokens, and the scopes that clients ask it for."""

    issuer: str
    scopes: tuple[str, ...] = ()


def router(frontends: FrontendsNow, address: PublicAddress, provider: Provider | None) -> APIRouter:
    """``GET /.well-known/oauth-protected-resource``, also with the path of a resource behind it.

    Args:
        frontends: The profiles, whose mounts have resources of their own.
        address: Says where clients find the gateway.
        provider: Whose tokens are taken; None: none are.
    """
    routes = APIRouter(tags=["health"])

    def document(resource: str) -> Response:
        if provider is None:
            raise NotFound("No tokens of a provider are taken here.", resource=METADATA)
        scopes = {"scopes_supported": list(provider.scopes)} if provider.scopes else {}
        said = {
            "resource": resource,
            "authorization_servers": [provider.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Causeway",
        }
        return json_answer(said | scopes)

    unknown = {404: "There is no such resource, or no tokens are taken"}

    @routes.get(METADATA, summary="Whose tokens /mcp takes", responses=answers(_DOCUMENT, unknown))
    async def own(request: Request) -> Response:
        """Of the front end that the request belongs to."""
        return document(address.of(request.scope) + PATH)

    @routes.get(
        METADATA + "/{path:path}", summary="Whose tokens a resource takes", responses=answers(_DOCUMENT, unknown)
    )
    async def of_path(request: Request, path: str) -> Response:
        """Of ``/mcp``, or of ``/{mount}/mcp``."""
        _, rest = frontends().resolve(f"/{path}")
        if rest != PATH:
            raise NotFound(f"There is no resource at /{path[:200]}.", resource=path)
        return document(f"{address.root(request.scope)}/{path}")

    return routes

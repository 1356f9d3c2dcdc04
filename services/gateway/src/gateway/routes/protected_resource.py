"""Routes of the metadata of protected resources, which name the accepted issuer of tokens (RFC 9728)."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from servicekit.errors import NotFound

from gateway.dialects.mcp.registration import PATH
from gateway.frontends.snapshot import CurrentFrontends
from gateway.routes.body import json_response
from gateway.routes.schemas import openapi_responses
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
    """The issuer of tokens, and the scopes that clients request from it."""

    issuer: str
    scopes: tuple[str, ...] = ()


def router(frontends: CurrentFrontends, address: PublicAddress, provider: Provider | None) -> APIRouter:
    """Return ``GET /.well-known/oauth-protected-resource``, with and without the path of a resource.

    Args:
        frontends: Returns the profiles. Each mount of a profile has its own resource.
        address: The public address of the gateway.
        provider: The issuer of accepted tokens; None: tokens are not accepted.
    """
    routes = APIRouter(tags=["health"])

    def document(resource: str) -> Response:
        if provider is None:
            raise NotFound("This gateway does not accept OpenID Connect tokens.", resource=METADATA)
        scopes = {"scopes_supported": list(provider.scopes)} if provider.scopes else {}
        metadata = {
            "resource": resource,
            "authorization_servers": [provider.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Causeway",
        }
        return json_response(metadata | scopes)

    unknown = {404: "The resource does not exist, or tokens are not accepted"}

    @routes.get(METADATA, summary="The metadata of /mcp", responses=openapi_responses(_DOCUMENT, unknown))
    async def front_end_metadata(request: Request) -> Response:
        """Return the metadata of the request's front end."""
        return document(address.front_end(request.scope) + PATH)

    @routes.get(
        METADATA + "/{path:path}",
        summary="The metadata of a resource",
        responses=openapi_responses(_DOCUMENT, unknown),
    )
    async def resource_metadata(request: Request, path: str) -> Response:
        """Return the metadata of ``/mcp``, or of ``/{mount}/mcp``."""
        _, rest = frontends().resolve(f"/{path}")
        if rest != PATH:
            raise NotFound(f"The resource /{path[:200]} does not exist.", resource=path)
        return document(f"{address.root(request.scope)}/{path}")

    return routes

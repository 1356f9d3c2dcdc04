"""Serves the web console: its page for browsers, and its static files."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from servicekit.errors import InvalidRequest

from gateway.server.not_found import no_route_error

FILES: Final = Path(__file__).parents[1] / "static"
"""The folder of the built console. Its sources are in `console/` of the repository."""

_PAGE = "index.html"
_MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".bcmap": "application/octet-stream",
    ".pfb": "application/octet-stream",
    ".ttf": "font/ttf",
}
# The build puts a hash of the content into the names of files, except those of the sample corpus.
_HASHED = re.compile(r"console/[^/]+-[A-Za-z0-9_-]{8}\.[a-z0-9]+$")
_CACHE_FOREVER = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    compressed: Path | None
    headers: dict[str, str]


Origins = Callable[[], Awaitable[Sequence[str]]]
"""Returns the origins that the page calls to sign a user in, besides the gateway's own."""


async def no_origins() -> Sequence[str]:
    """Return no origins, for a gateway that does not accept tokens."""
    return ()


def router(origins: Origins = no_origins, files: Path = FILES) -> APIRouter:
    """Return ``GET /`` for browsers, and ``GET /console/{path}``.

    Args:
        origins: Returns the origins of the provider that issues the tokens.
        files: The folder of the built console.

    Raises:
        InvalidRequest: The page is not built.
    """
    files_by_path = _files_by_path(files)
    if _PAGE not in files_by_path:
        raise InvalidRequest(
            "CAUSEWAY_CONSOLE is set, but the console is not built. Run `make setup`, or unset CAUSEWAY_CONSOLE.",
            field="CAUSEWAY_CONSOLE",
        )
    routes = APIRouter(tags=["console"], include_in_schema=False)

    @routes.get("/")
    async def page(request: Request) -> Response:
        """Return the page to clients that accept HTML. Return 404 to other clients."""
        if "text/html" not in request.headers.get("accept", ""):
            raise no_route_error(request.scope)
        return _file_response(
            request, files_by_path[_PAGE], {"content-security-policy": _content_security_policy(await origins())}
        )

    @routes.get("/console/{path:path}")
    async def asset(request: Request, path: str) -> Response:
        """Return a script, a style or a picture of the page, or a file of the sample corpus."""
        found = files_by_path.get(f"console/{path}")
        if found is None:
            raise no_route_error(request.scope)
        return _file_response(request, found)

    return routes


def _files_by_path(files: Path) -> dict[str, _File]:
    """Return the files by their relative paths. The gateway serves no other files."""
    listed = {path.relative_to(files).as_posix(): path for path in sorted(files.rglob("*")) if path.is_file()}
    return {
        name: _File(path, listed.get(f"{name}.gz"), _headers(name))
        for name, path in listed.items()
        if path.suffix in _MEDIA
    }


def _headers(name: str) -> dict[str, str]:
    headers = {
        "content-type": _MEDIA[Path(name).suffix],
        "cache-control": _CACHE_FOREVER if _HASHED.match(name) else _REVALIDATE,
        "cross-origin-resource-policy": "same-origin",
    }
    if name == _PAGE:
        headers |= {
            "cross-origin-opener-policy": "same-origin",
            "vary": "accept, accept-encoding",
        }
    else:
        headers["vary"] = "accept-encoding"
    return headers


def _content_security_policy(origins: Sequence[str]) -> str:
    """Return the content security policy. The page may load its files and call the gateway and some origins."""
    rules = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' blob:",
        "font-src": "'self'",
        "connect-src": " ".join(("'self'", *origins)),
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _file_response(request: Request, file: _File, more: Mapping[str, str] | None = None) -> Response:
    headers = file.headers | dict(more or {})
    if file.compressed is None or "gzip" not in request.headers.get("accept-encoding", ""):
        return FileResponse(file.path, headers=headers)
    return FileResponse(file.compressed, headers=headers | {"content-encoding": "gzip"})

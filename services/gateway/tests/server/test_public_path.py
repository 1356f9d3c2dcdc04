import pytest
from gateway.server.public_path import PublicPath
from gateway.settings import Settings
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send


async def serve(scope: Scope, location: bytes | None = None) -> tuple[Scope, list[tuple[bytes, bytes]]]:
    """Return the scope that the routes receive, and the headers of the response."""
    seen: list[Scope] = []
    sent: list[Message] = []

    async def routes(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        headers = [] if location is None else [(b"location", location)]
        await send({"type": "http.response.start", "status": 201, "headers": headers})

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await PublicPath(routes, "/causeway")({"type": "http", "headers": [], **scope}, receive, send)
    return seen[0], sent[0]["headers"]


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_documentation_gets_the_root_path(path: str) -> None:
    """The routes of the documentation receive the public path as root path. The caller's scope does not change."""
    scope = {"path": path}
    seen, _ = await serve(scope)
    assert (seen["root_path"], seen["path"]) == ("/causeway", f"/causeway{path}")
    assert scope == {"path": path}


@pytest.mark.parametrize("path", ["/indexes", "/documents", "/docs/oauth2-redirect", "/causeway/docs"])
async def test_other_routes_get_the_path_unchanged(path: str) -> None:
    """Other routes receive the path of the request unchanged."""
    seen, _ = await serve({"path": path})
    assert seen["path"] == path
    assert "root_path" not in seen


@pytest.mark.parametrize(
    ("location", "public"),
    [(b"/jobs/1", b"/causeway/jobs/1"), (b"https://elsewhere.example.com/", b"https://elsewhere.example.com/")],
)
async def test_a_location_gets_the_public_path(location: bytes, public: bytes) -> None:
    """A relative location gets the public path as a prefix. An absolute location does not change."""
    _, headers = await serve({"path": "/indexes"}, location)
    assert headers == [(b"location", public)]


@pytest.mark.parametrize("path", ["", "/causeway", "/apps/rag-2.0", "/~team/_x"])
def test_valid_public_paths_are_accepted(path: str) -> None:
    """A public path consists of segments of letters, digits and a few marks."""
    assert Settings(public_path=path).public_path == path


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "causeway",
        "/causeway/",
        "//evil.example.com",
        "/a//b",
        "javascript:alert(1)",
        "https://evil.example.com",
        "/a/../b",
        "/.",
        "/a\r\nSet-Cookie: x=1",
        "/a\n",
        "/a'b",
        '/a"b',
        "/<script>",
        "/a?b",
        "/a#b",
        "/a\\b",
        "/%2e%2e",
        "/" + "a" * 200,
    ],
)
def test_invalid_public_paths_are_refused(path: str) -> None:
    """An unsafe or too long public path is refused at the start."""
    with pytest.raises(ValidationError, match="public_path"):
        Settings(public_path=path)

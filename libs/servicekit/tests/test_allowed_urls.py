from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servicekit.allowed_urls import AllowedUrls, document_name
from servicekit.errors import CausewayError, InvalidRequest, PermissionDenied

ALLOWED = AllowedUrls.of(["docs.example.org", "*.example.com", "files.example.net:8443"])
ALL = AllowedUrls.of(["*"])


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("https://docs.example.org", "https://docs.example.org/"),
        ("HTTPS://Docs.Example.ORG./a/b?c=d#e", "https://docs.example.org/a/b?c=d"),
        ("http://docs.example.org:80/a", "http://docs.example.org/a"),
        ("https://a.b.example.com/x", "https://a.b.example.com/x"),
        ("https://files.example.net:8443/x", "https://files.example.net:8443/x"),
        ("https://docs.example.org/Fähre", "https://docs.example.org/F%C3%A4hre"),
        ("https://docs.example.org/a%20b", "https://docs.example.org/a%20b"),
    ],
)
def test_an_allowed_url_is_normalised(url: str, checked: str) -> None:
    """A URL has one plain form, and the plain form stays the same."""
    assert ALLOWED.checked(url) == checked
    assert ALLOWED.checked(checked) == checked


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/",
        "https://example.com/",
        "https://evilexample.com/",
        "https://docs.example.org.evil.net/",
        "https://docs.example.org:8443/",
        "http://docs.example.org:443/",
        "https://files.example.net/",
        "https://127.0.0.1/",
        "https://[::1]/",
    ],
)
def test_other_hosts_and_ports_are_refused(url: str) -> None:
    """Other hosts and ports are refused, and so are hosts that only look like an allowed one."""
    with pytest.raises(PermissionDenied) as caught:
        ALLOWED.checked(url, "urls[0]")
    assert caught.value.field == "urls[0]"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "docs.example.org/a",
        "//docs.example.org/a",
        "/a",
        "file:///etc/passwd",
        "ftp://docs.example.org/",
        "gopher://docs.example.org/",
        "data:text/plain,x",
        "https://",
        "https:///a",
        "https://user@docs.example.org/",
        "https://user:secret@docs.example.org/",
        "https://evil.net\\@docs.example.org/",
        "https://docs.example.org\\.evil.net/",
        "https://docs.example.org/a b",
        "https://docs.example.org/\r\nhost: x",
        "https://docs.example.org:99999/",
        "https://docs.example.org:x/",
        "https://d\u043ecs.example.org/",
        "https://docs%2eexample.org/",
        "https://[::1",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.0.0.0x1/",
        "https://docs.example.org/" + "x" * 512,
    ],
)
def test_invalid_urls_are_refused(url: str) -> None:
    """Other schemes, credentials, and URLs that two parsers could read differently are refused."""
    with pytest.raises(InvalidRequest):
        ALL.checked(url)


@given(
    st.text(max_size=80), st.sampled_from(["", "https://", "http://docs.example.org", "https://a@", "https://["])
)
def test_accepted_urls_have_the_checked_host(tail: str, head: str) -> None:
    """An accepted URL is ASCII, has no user, and is accepted again unchanged."""
    try:
        checked = ALLOWED.checked(head + tail)
    except CausewayError:
        return
    split = urlsplit(checked)
    assert checked.isascii()
    assert "@" not in split.netloc
    assert split.hostname == "docs.example.org" or str(split.hostname).endswith(".example.com")
    assert ALLOWED.checked(checked) == checked


@pytest.mark.parametrize("pattern", ["", "a/b", "https://a", "a:", "a:x", "a:0", "*a", "**", "[::1]", "a b"])
def test_a_wrong_pattern_is_named(pattern: str) -> None:
    """A wrong pattern is an error at the start, before the first URL."""
    with pytest.raises(ValueError, match="host"):
        AllowedUrls.of([pattern])


def test_nothing_is_allowed_by_default() -> None:
    """Without the setting, every URL is refused."""
    assert not AllowedUrls().has_hosts
    with pytest.raises(PermissionDenied):
        AllowedUrls().checked("https://docs.example.org/")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://docs.example.org/", "docs.example.org"),
        ("https://docs.example.org/a/fares.html", "docs.example.org/a/fares.html"),
        ("https://docs.example.org/F%C3%A4hre.md", "docs.example.org/Fähre.md"),
        ("https://docs.example.org/a%2Fb", "docs.example.org/a%2Fb"),
        ("https://docs.example.org/a%0Ab", "docs.example.org/a%0Ab"),
        ("https://docs.example.org/%FF", "docs.example.org/%FF"),
        ("https://docs.example.org/show?id=3", "docs.example.org/show?id=3"),
        ("https://docs.example.org/show%3Fid=3", "docs.example.org/show%3Fid=3"),
        ("https://docs.example.org/100%2541", "docs.example.org/100%2541"),
    ],
)
def test_document_names_are_readable_and_unique(url: str, name: str) -> None:
    """A name is readable if the URL can be derived from it. Two URLs have two names."""
    assert document_name(url) == name

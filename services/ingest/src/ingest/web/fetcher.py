"""Downloads a URL into a file; implements `ingest.ports.Web` with aiohttp.

The URL of a document and its redirects are untrusted. The fetcher resolves each host name once, checks all its
addresses, and connects to one of them. It checks a redirect like the first URL.
"""

import asyncio
import socket
from collections.abc import Callable
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult
from servicekit.allowed_urls import AllowedUrls
from servicekit.errors import (
    DeadlineExceeded,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    UnreadableDocument,
    UnsupportedMedia,
    UpstreamRejected,
)
from yarl import URL

from ingest.domain import DownloadInfo, Validators
from ingest.parsing.registry import READABLE, SUFFIXES
from ingest.web.addresses import is_public

_log = structlog.get_logger(__name__)
_MAX_REDIRECTS = 5
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_PIECE_BYTES = 256 * 1024
_MAX_VALIDATOR_CHARACTERS = 256
"""Maximum number of characters of a validator. A longer validator is ignored."""
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 20.0

_GENERIC_TYPES = ("", "application/octet-stream", "binary/octet-stream", "application/download", "text/plain")
"""Generic content types. For these, the suffix of the URL's path says more about the format."""


class WebFetcher:
    """Fetches documents from allowed hosts.

    Args:
        allowed: The allowed URLs; redirects are checked against them, too.
        max_bytes: Maximum size of a document in bytes.
        seconds: Time limit of a download, including redirects.
        is_allowed_address: Returns whether the fetcher may connect to an address.
    """

    def __init__(
        self,
        allowed: AllowedUrls,
        *,
        max_bytes: int,
        seconds: float,
        is_allowed_address: Callable[[str], bool] = is_public,
    ) -> None:
        self._allowed = allowed
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._is_allowed_address = is_allowed_address
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, target: Path, known: Validators | None) -> DownloadInfo | None:
        """See `ingest.ports.Web.fetch`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url, target, known)
        except aiohttp.ServerTimeoutError as error:  # a TimeoutError, too
            _log.info("the server of a URL does not answer", url=url, error=repr(error))
            raise DeadlineExceeded("The server of the URL does not answer in time.") from error
        except TimeoutError:
            raise DeadlineExceeded(f"Fetching the URL took longer than {self._seconds:g} s.") from None
        except aiohttp.ClientError as error:
            _log.info("cannot fetch a URL", url=url, error=repr(error))
            raise UpstreamRejected("The server of the URL cannot be reached.", status=502, body="") from error

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _follow(self, url: str, target: Path, known: Validators | None) -> DownloadInfo | None:
        headers = {"accept-encoding": "identity"}
        if known is not None and known.etag:
            headers["if-none-match"] = known.etag
        if known is not None and known.last_modified:
            headers["if-modified-since"] = known.last_modified
        for _ in range(_MAX_REDIRECTS + 1):
            url = self._allowed.checked(url)
            parsed = URL(url, encoded=True)
            self._check_literal(parsed.host or "")
            async with self._open_session().get(parsed, headers=headers, allow_redirects=False) as response:
                if response.status in _REDIRECT_STATUSES and "location" in response.headers:
                    try:
                        url = str(parsed.join(URL(response.headers["location"])))
                    except ValueError:
                        raise UnreadableDocument("The URL redirects to an invalid URL.") from None
                    continue
                if response.status == 304 and known is not None:
                    return None
                _check_status(response.status)
                return await self._download(response, parsed, target)
        raise UnreadableDocument(f"The URL redirects more than {_MAX_REDIRECTS} times.")

    async def _download(self, response: aiohttp.ClientResponse, parsed: URL, target: Path) -> DownloadInfo:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedMedia(
                "The URL's server compressed the document, although the request forbids compression."
            )
        suffix = suffix_of(response.headers.get("content-type", ""), PurePosixPath(parsed.path).suffix)
        too_large = PayloadTooLarge(f"The document at the URL is too large. The limit is {self._max_bytes} bytes.")
        if (response.content_length or 0) > self._max_bytes:
            raise too_large
        size = 0
        with target.open("wb") as file:
            async for piece in response.content.iter_chunked(_PIECE_BYTES):
                size += len(piece)
                if size > self._max_bytes:
                    raise too_large
                await asyncio.to_thread(file.write, piece)
        if not size:
            raise UnreadableDocument("The document at the URL is empty.")
        return DownloadInfo(suffix, Validators(_validator(response, "etag"), _validator(response, "last-modified")))

    def _check_literal(self, host: str) -> None:
        """Check the host of a URL if it is an IP address, because the resolver checks only names."""
        try:
            ip_address(host)
        except ValueError:
            return
        if not self._is_allowed_address(host):
            raise _not_public(host)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=_CheckedResolver(self._is_allowed_address), use_dns_cache=False, force_close=True
                ),
                timeout=aiohttp.ClientTimeout(
                    total=self._seconds, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
                ),
                headers={"user-agent": "causeway-ingest"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a small response could become a large one
                trust_env=False,  # a proxy would resolve names without the check
            )
        return self._session


class _CheckedResolver(AbstractResolver):
    """Resolves names, and refuses a name if one of its addresses is not allowed.

    The connection uses one of the checked addresses. The name is not resolved again.
    """

    def __init__(self, is_allowed_address: Callable[[str], bool]) -> None:
        self._is_allowed_address = is_allowed_address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        results: list[ResolveResult] = []
        for address_family, _, proto, _, socket_address in found:
            address = str(socket_address[0])
            if not self._is_allowed_address(address):
                raise _not_public(host)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=address_family,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Do nothing: this resolver owns no resources."""


def _not_public(host: str) -> PermissionDenied:
    return PermissionDenied(
        f"{host!r} is not on the public internet. Documents are fetched only from the public internet."
    )


def _check_status(status: int) -> None:
    if status in (200, 203):
        return
    if status in (404, 410):
        raise NotFound("There is no document at the URL.")
    if status in (401, 403, 407):
        raise PermissionDenied("The URL's server refuses access to the document.")
    if status in (408, 425, 429) or status >= 500:
        raise UpstreamRejected(f"The URL's server responded with status {status}.", status=status, body="")
    raise UnreadableDocument(f"The URL's server responded with status {status}.")


def _validator(response: aiohttp.ClientResponse, name: str) -> str:
    value = response.headers.get(name, "")
    return value if len(value) <= _MAX_VALIDATOR_CHARACTERS and value.isascii() and value.isprintable() else ""


def suffix_of(content_type: str, path_suffix: str) -> str:
    """Return the file name suffix for a content type; for a generic or unknown text type, that of the URL's path.

    Args:
        content_type: The value of the header; may be empty.
        path_suffix: The suffix of the URL's path, with its dot; may be empty.

    Raises:
        UnsupportedMedia: Files of this content type are not supported.
    """
    message = EmailMessage()
    message["content-type"] = content_type.replace("\n", " ").replace("\r", " ")
    media = message.get_content_type().lower() if content_type.strip() else ""
    if media in _GENERIC_TYPES:
        return path_suffix or (".txt" if media == "text/plain" else "")
    if media in SUFFIXES:
        return SUFFIXES[media]
    if media.startswith("text/"):
        return path_suffix or ".txt"
    raise UnsupportedMedia(f"The document at the URL has the type {media}. {READABLE}")

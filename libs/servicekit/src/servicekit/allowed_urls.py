"""The URLs from which documents may be fetched: the operator lists the allowed hosts.

A checked URL is unambiguous: the HTTP client and this check read the same host. This module does not resolve the
host. The HTTP client must check the resolved addresses.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Annotated, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator

from servicekit.errors import InvalidRequest, PermissionDenied

_MAX_LENGTH = 512
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
_ADDRESS = re.compile(r"[0-9a-f:.]+")
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")
"""Hosts that some parsers interpret as IPv4 addresses (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""
_PLAIN = re.compile(r"[!-\[\]-~]+")
"""The characters of a URL in RFC 3986 and a few more, but no spaces, control characters and backslashes."""
_IN_NAMES = "/:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class _Hosts:
    """``host``, ``*.host`` for all subdomains, or ``*``; ``port`` 0 means the default port of the scheme."""

    host: str
    port: int

    def match(self, host: str, port: int, default_port: int) -> bool:
        if port != (self.port or default_port):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return self.host in ("*", host)


@dataclass(frozen=True, slots=True)
class AllowedUrls:
    """The hosts from which documents may be fetched; none by default."""

    hosts: tuple[_Hosts, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Self:
        """Return the allowed hosts of settings.

        A pattern is ``docs.example.org``, ``*.example.org`` for all subdomains, or ``*`` for all hosts. With
        ``:8443`` at its end, it allows that port in place of the default one.

        Raises:
            ValueError: A pattern is invalid.
        """
        return cls(tuple(map(_parsed, patterns)))

    @property
    def has_hosts(self) -> bool:
        """Whether any host is allowed."""
        return bool(self.hosts)

    def checked(self, url: str, field: str | None = None) -> str:
        """Return the URL to fetch, with its host in lower case and ASCII, without a fragment.

        Raises:
            InvalidRequest: The URL is not an absolute http or https URL, contains a user or a password, or has more
                than 512 characters.
            PermissionDenied: The host or the port is not allowed.
        """
        scheme, host, port, rest = _parts(url, field)
        if not any(hosts.match(host, port, _PORTS[scheme]) for hosts in self.hosts):
            raise PermissionDenied(
                f"CAUSEWAY_INGEST_URLS does not allow documents from {_authority(scheme, host, port)!r}.",
                field=field,
            )
        return f"{scheme}://{_authority(scheme, host, port)}{rest}"


def document_name(url: str) -> str:
    """Return the name of a document from a checked URL: host, path and query, decoded if that is unambiguous.

    Different URLs have different names, unless they differ only in the scheme.
    """
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    plain = unquote(path, errors="replace")
    # A decoded path that is itself a valid path could be that of another URL: `a%3Fb` and `a?b` are two documents.
    if plain.isprintable() and quote(plain, safe=_IN_NAMES) == path and not _PLAIN.fullmatch(plain):
        path = plain
    return f"{host}{slash}{path}" if path else host


def _patterns(patterns: list[str]) -> list[str]:
    AllowedUrls.of(patterns)
    return patterns


UrlPatterns = Annotated[list[str], AfterValidator(_patterns)]
"""The type of a setting with patterns of `AllowedUrls.of`."""


def _parsed(pattern: str) -> _Hosts:
    host, _, port = pattern.strip().lower().partition(":")
    name = host.removeprefix("*.")
    is_host = host == "*" or _NAME.fullmatch(name)
    if not is_host or (":" in pattern and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{pattern!r} is not a host, *.host or *, with or without a port")
    return _Hosts(host, int(port or 0))


def _parts(url: str, field: str | None) -> tuple[str, str, int, str]:
    """Return the scheme, the host, the port and the rest (path and query) of a URL.

    Raises:
        InvalidRequest: The URL is not an absolute http or https URL, or contains a user or a password.
    """
    shown = url[:_MAX_LENGTH]
    if len(url) > _MAX_LENGTH:
        raise InvalidRequest(f"A URL has at most {_MAX_LENGTH} characters.", field=field)
    if not url.isascii():
        url = quote(url, safe="%" + "".join(map(chr, range(33, 127)))) if _ascii_host(url) else url
    wrong = InvalidRequest(f"{shown!r} is not an http or https URL.", field=field)
    if not _PLAIN.fullmatch(url):
        raise wrong
    try:
        split = urlsplit(url)
        host, port = (split.hostname or "").removesuffix("."), split.port
    except ValueError:
        raise wrong from None
    if split.scheme not in _PORTS or not host:
        raise wrong
    if "@" in split.netloc:
        raise InvalidRequest("A URL must not contain a user or a password.", field=field)
    if not (_ADDRESS if "[" in split.netloc else _NAME).fullmatch(host):
        raise wrong
    if ":" not in host and _NUMBER.fullmatch(host) and not _is_ipv4(host):
        raise wrong
    rest = urlunsplit(("", "", split.path or "/", split.query, ""))
    return split.scheme, host, _PORTS[split.scheme] if port is None else port, rest


def _is_ipv4(host: str) -> bool:
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


def _ascii_host(url: str) -> bool:
    """Return whether the host is in ASCII. Other hosts must be given as xn--…, because letters can look alike."""
    return url.partition("://")[2].partition("/")[0].isascii()


def _authority(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _PORTS[scheme] else f"{shown}:{port}"

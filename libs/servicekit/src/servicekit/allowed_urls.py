"""Which URLs documents may be fetched from: those on hosts that the operator has named, and no others.

A URL that passes is plain: one way to read it is left, so that who connects reads no other host out of it than who
checked it. Where the host's name leads is not known here: who connects looks at the address.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Annotated, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator

from servicekit.errors import InvalidRequest, PermissionDenied

_LONGEST = 512
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
_ADDRESS = re.compile(r"[0-9a-f:.]+")
_NUMBER = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")
"""Hosts that some take for IPv4 addresses (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""
_PLAIN = re.compile(r"[!-\[\]-~]+")
"""A little more than what RFC 3986 lets a URL consist of: no spaces, control characters and backslashes."""
_IN_NAMES = "/:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class _Hosts:
    """``host``, ``*.host`` for all below it, or ``*``; ``port`` is 0 for those of the schemes."""

    host: str
    port: int

    def take(self, host: str, port: int, usual: int) -> bool:
        if port != (self.port or usual):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return self.host in ("*", host)


@dataclass(frozen=True, slots=True)
class AllowedUrls:
    """Hosts that documents may be fetched from; of none by default."""

    hosts: tuple[_Hosts, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Self:
        """From settings: ``docs.example.org``, ``*.example.org`` for all below it, ``*`` for all; with ``:8443``
        behind it for another port than the scheme's.

        Raises:
            ValueError: One is none of these.
        """
        return cls(tuple(map(_hosts, patterns)))

    @property
    def any(self) -> bool:
        """Whether URLs are taken at all."""
        return bool(self.hosts)

    def checked(self, url: str, field: str | None = None) -> str:
        """The URL as it is fetched: with its host in lower case and ASCII, without a fragment.

        Raises:
            InvalidRequest: It is no absolute http or https URL, or has a user or password in it.
            PermissionDenied: Its host or port is not allowed.
        """
        scheme, host, port, rest = _parts(url, field)
        if not any(hosts.take(host, port, _PORTS[scheme]) for hosts in self.hosts):
            raise PermissionDenied(
                f"Documents are not fetched from {_authority(scheme, host, port)!r}.", field=field
            )
        return f"{scheme}://{_authority(scheme, host, port)}{rest}"


def document_name(url: str) -> str:
    """What a document is called that comes from a checked URL: host, path and query; readable where it can be.

    Two URLs have two names, but where they differ in the scheme alone.
    """
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    plain = unquote(path, errors="replace")
    if plain.isprintable() and quote(plain, safe=_IN_NAMES) == path:
        path = plain
    return f"{host}{slash}{path}" if path else host


def _patterns(patterns: list[str]) -> list[str]:
    AllowedUrls.of(patterns)
    return patterns


UrlPatterns = Annotated[list[str], AfterValidator(_patterns)]
"""Of settings."""


def _hosts(pattern: str) -> _Hosts:
    host, _, port = pattern.strip().lower().partition(":")
    name = host.removeprefix("*.")
    named = host == "*" or _NAME.fullmatch(name)
    if not named or (":" in pattern and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ValueError(f"{pattern!r} is no host, *.host or *, with or without a port")
    return _Hosts(host, int(port or 0))


def _parts(url: str, field: str | None) -> tuple[str, str, int, str]:
    """Scheme, host, port, and what follows."""
    shown = url[:_LONGEST]
    if len(url) > _LONGEST:
        raise InvalidRequest(f"A URL has at most {_LONGEST} characters.", field=field)
    if not url.isascii():
        url = quote(url, safe="%" + "".join(map(chr, range(33, 127)))) if _ascii_host(url) else url
    wrong = InvalidRequest(f"{shown!r} is no http or https URL.", field=field)
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
        raise InvalidRequest("A URL with a user or a password in it is not fetched.", field=field)
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
    """A host in other letters is to be given in ASCII (xn--…): what looks alike is not the same."""
    return url.partition("://")[2].partition("/")[0].isascii()


def _authority(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _PORTS[scheme] else f"{shown}:{port}"

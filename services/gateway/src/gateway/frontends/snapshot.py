"""The snapshot of all front end profiles. It finds the profile of a request."""

from collections.abc import Callable, Iterable

from gateway.frontends.profiles import Frontend


class Frontends:
    """A snapshot of all profiles. A request uses the same snapshot until it ends.

    Args:
        default: The profile of requests that match no other profile.
        others: The other profiles. Their names, mounts, hosts and origins are unique.

    Attributes:
        default: The default profile.
    """

    def __init__(self, default: Frontend, others: Iterable[Frontend] = ()) -> None:
        self.default = default
        profiles = (default, *others)
        self._names = {profile.name: profile for profile in profiles}
        self._mounts = {profile.mount: profile for profile in profiles if profile.mount}
        self._hosts = {host: profile for profile in profiles for host in profile.hosts}
        self._origins = {origin: profile for profile in profiles for origin in profile.origins}
        self._profiles_of_key: dict[str, frozenset[str]] = {}
        for profile in profiles:
            for key in profile.keys:
                self._profiles_of_key[key] = self.profiles_of_key(key) | {profile.name}

    def profiles_of_key(self, key_name: str) -> frozenset[str]:
        """Return the names of the profiles that list the API key with this name; empty: no profile restricts it."""
        return self._profiles_of_key.get(key_name, frozenset())

    def named(self, name: str) -> Frontend | None:
        """Return the profile of this name; None if it does not exist."""
        return self._names.get(name)

    def has_host(self, host: str) -> bool:
        """Return whether a host, in lower case and with or without a port, belongs to a profile."""
        return host in self._hosts or _without_port(host) in self._hosts

    def resolve(self, path: str, host: str = "", origin: str = "") -> tuple[Frontend, str]:
        """Return the profile of a request by mount, host or origin (in this order), and the path below the mount.

        Args:
            path: The path of the request, beginning with a slash.
            host: The ``Host`` header, in lower case; empty without the header.
            origin: The ``Origin`` header; empty without the header.
        """
        if self._mounts:
            segment, slash, rest = path[1:].partition("/")
            mounted = self._mounts.get(segment)
            if mounted is not None:
                return mounted, slash + rest or "/"
        found = None
        if self._hosts and host:
            found = self._hosts.get(host) or self._hosts.get(_without_port(host))
        if found is None and self._origins and origin:
            found = self._origins.get(origin)
        return found or self.default, path


CurrentFrontends = Callable[[], Frontends]
"""Returns the current snapshot."""


def _without_port(host: str) -> str:
    # An IPv6 address has brackets, so the last part of an address without a port ends with a bracket.
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host

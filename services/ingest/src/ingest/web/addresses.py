"""Decides whether an address is on the public internet, because downloads must not reach the internal network.

The special addresses are in https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_REFUSED_NETWORKS = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # Azure's WireServer: a public address that leads to the host
            "192.0.0.0/24",  # IETF protocols; Oracle Cloud has a metadata service at 192.0.0.192
            "192.88.99.0/24",  # 6to4 relays
            "64:ff9b:1::/48",  # NAT64 of a local network
            "2001::/23",  # IETF protocols, for example Teredo, which embeds addresses
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Return whether an IP address is on the public internet.

    If an IPv6 address contains an IPv4 address (IPv4-mapped, 6to4 or NAT64), the IPv4 address decides. Teredo
    addresses are not public.

    Raises:
        ValueError: The text is not an IP address.
    """
    return _is_public(ip_address(address))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address.version == network.version and address in network for network in _REFUSED_NETWORKS):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)

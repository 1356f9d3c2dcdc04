import pytest
from ingest.web.addresses import is_public

PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::1",
]
OTHERS = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:0:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "2001::1",
    "2001:0:53aa:64c:0:fffe:7f00:1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet(address: str) -> None:
    """A worker may connect to public addresses, also to public IPv4 addresses within IPv6 addresses."""
    assert is_public(address)


@pytest.mark.parametrize("address", OTHERS)
def test_all_other_addresses(address: str) -> None:
    """A worker never connects to addresses of the machine, its networks, metadata services or reserved ranges, not
    even to such IPv4 addresses within IPv6 addresses.
    """
    assert not is_public(address)

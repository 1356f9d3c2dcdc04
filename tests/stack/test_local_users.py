"""Other users of the machine have no access to a stack."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

SERVICES = ("retriever", "generator", "guardrails", "ingest")
OTHER_USER = 65534
CONNECT = """
import os, socket, sys
if user := int(sys.argv[2]):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
with socket.socket(socket.AF_UNIX) as client:
    try:
        client.connect(sys.argv[1])
    except OSError as error:
        sys.exit(error.errno)
"""
_LISTENS = "0A"


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports on which a process listens."""
    process = Path("/proc") / str(pid)
    inodes = set()
    for each in (process / "fd").iterdir():
        link = os.readlink(each)
        if link.startswith("socket:["):
            inodes.add(link[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and inode in inodes:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


async def connect(path: Path, user: int = 0) -> int:
    """Connect to a Unix socket, optionally as another user. Return 0, or the error number."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CONNECT, str(path), str(user))
    return await process.wait()


async def test_only_the_gateway_and_the_broker_have_ports(stack: Any) -> None:
    """All other services listen on Unix sockets that only their owner can open, because they trust their
    callers.
    """
    services = stack.description()["services"]
    assert {name: listening_ports(service["pid"]) for name, service in services.items()} == {
        name: {service["port"]} if "port" in service else set() for name, service in services.items()
    }
    for name in SERVICES:
        path = Path(services[name]["socket"])
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert await connect(path) == 0
        if os.getuid() == 0:  # only root can act as another user
            assert os.strerror(await connect(path, OTHER_USER)) == "Permission denied"


async def test_the_broker_requires_a_password(stack: Any) -> None:
    """The broker refuses a connection without a password, and closes it."""
    port = stack.description()["services"]["nats"]["port"]
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
        connection.makefile("rwb") as stream,
    ):
        assert stream.readline().startswith(b"INFO")
        stream.write(b'CONNECT {"verbose": false}\r\nPING\r\n')
        stream.flush()
        assert b"Authorization Violation" in stream.readline()
        assert stream.read() == b""

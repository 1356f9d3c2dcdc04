"""What other users of the machine reach of a stack: the gateway, and a broker that asks for a password."""

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
with socket.socket(socket.AF_UNIX) as one:
    try:
        one.connect(sys.argv[1])
    except OSError as error:
        sys.exit(error.errno)
"""
_LISTENS = "0A"


def listening(pid: int) -> set[int]:
    """The TCP ports that a process listens on."""
    process = Path("/proc") / str(pid)
    mine = set()
    for each in (process / "fd").iterdir():
        link = os.readlink(each)
        if link.startswith("socket:["):
            mine.add(link[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and inode in mine:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


async def connecting(path: Path, user: int = 0) -> int:
    """The error number of connecting to a socket, as another user where one is named; 0: it went well."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CONNECT, str(path), str(user))
    return await process.wait()


async def test_only_gateway_and_broker_have_ports(stack: Any) -> None:
    """The others take any principal from their callers: they listen on sockets that only their owner reaches."""
    services = stack.description()["services"]
    assert {name: listening(one["pid"]) for name, one in services.items()} == {
        name: {one["port"]} if "port" in one else set() for name, one in services.items()
    }
    for name in SERVICES:
        path = Path(services[name]["socket"])
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert await connecting(path) == 0
        if os.getuid() == 0:  # else there is no other user whom a test could be
            assert os.strerror(await connecting(path, OTHER_USER)) == "Permission denied"


async def test_the_broker_takes_no_stranger(stack: Any) -> None:
    """Its port is open to every user of the machine; without a password it says why it does nothing, and closes."""
    port = stack.description()["services"]["nats"]["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger, stranger.makefile("rwb") as stream:
        assert stream.readline().startswith(b"INFO")
        stream.write(b'CONNECT {"verbose": false}\r\nPING\r\n')
        stream.flush()
        assert b"Authorization Violation" in stream.readline()
        assert stream.read() == b""

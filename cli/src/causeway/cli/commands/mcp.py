"""``causeway mcp``: the platform's MCP server for clients that use standard input and output."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from causeway.cli.client import check_api_key, gateway_host
from causeway.cli.errors import CommandError, UsageError
from causeway.cli.mcp_bridge import Bridge, bridge_client
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Url, resolve_url

FrontEnd = Annotated[
    str,
    typer.Option(
        "--front-end",
        "-f",
        metavar="MOUNT",
        help="Mount (first path segment) of the front end profile to use. Default: the path /mcp without a mount.",
    ),
]

_MAX_LINE_BYTES = 4 * 1024 * 1024
_MOUNT = re.compile(r"[A-Za-z0-9._~-]*")

EXAMPLES = (
    "causeway mcp",
    "CAUSEWAY_API_KEY=… causeway mcp --url https://rag.example.org --front-end help",
)


def mcp(
    front_end: FrontEnd = "", url: Url = None, data_dir: DataDir = DEFAULT_DATA_DIR, api_key: ApiKey = ""
) -> None:
    """Serve the Model Context Protocol (MCP) on stdin and stdout.

    An MCP client, such as a desktop application, starts this command and sends one message per line. The command
    forwards the messages to the platform at --url. With --front-end the client gets the tools, indexes and prompts
    of that front end.
    """
    base = resolve_url(url, data_dir).rstrip("/")
    host = gateway_host(base)
    check_api_key(api_key)
    mount = front_end.strip("/")
    if not _MOUNT.fullmatch(mount):
        raise UsageError(f"--front-end must be the first path segment of a front end, such as help, not {mount!r}")
    asyncio.run(_serve(f"{base}/{mount}/mcp" if mount else f"{base}/mcp", host, api_key))


async def _serve(address: str, host: str, api_key: str) -> None:
    async with bridge_client(api_key, host) as http:
        await Bridge(http, address, _write).serve(_lines())


async def _write(line: str) -> None:
    # In a thread, because a client that does not read blocks the write.
    await asyncio.to_thread(_print, line)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _lines() -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    if sys.stdin is None:
        raise CommandError("the standard input is closed; an MCP client writes its messages to it")
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    except ValueError as error:
        message = "the standard input must be a pipe, a socket or a terminal; use a pipe to send a file"
        raise CommandError(message) from error
    try:
        while line := await reader.readline():
            yield line
    except ValueError as error:
        raise CommandError(f"a message of the MCP client is longer than {_MAX_LINE_BYTES} bytes") from error

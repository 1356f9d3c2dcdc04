"""``causeway up``: runs the whole platform on this machine until Ctrl-C."""

import asyncio
import contextlib
import enum
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from causeway.cli import render
from causeway.cli.options import DEFAULT_DATA_DIR, DataDir, Json
from causeway.cli.reservation import HOST
from causeway.cli.signals import cancelled_by_signals
from causeway.cli.stack import BROKER, SERVICES, Stack
from rich.console import Console
from rich.text import Text

Port = Annotated[
    int, typer.Option(min=0, max=65535, metavar="PORT", help="Port of the gateway; 0 selects a free port.")
]
Timeout = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="Maximum seconds until all services are ready.")
]


class AuthMode(enum.StrEnum):
    """Which callers the gateway accepts."""

    NONE = "none"
    KEYS = "keys"
    OIDC = "oidc"
    BOTH = "keys,oidc"


Auth = Annotated[
    AuthMode,
    typer.Option(
        envvar="CAUSEWAY_AUTH",
        help="Authentication of callers: none (accept every caller on this machine), API keys, OpenID Connect "
        "tokens, or both.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the logs of all processes.")]

EXAMPLES = (
    "causeway up",
    "causeway up --port 0 --data-dir /tmp/try --verbose",
    "causeway up --port 0 --json",
    "causeway up --auth keys",
)


def up(
    port: Port = 8080,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    timeout: Timeout = 120,
    auth: Auth = AuthMode.NONE,
    *,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run the platform on this machine until Ctrl-C.

    The command starts nats-server and the five services, waits until all of them are ready, and restarts processes
    that end. The gateway and nats-server listen on the loopback interface. The other services listen on Unix
    sockets that only their owner can access. Logs are in DATA_DIR/logs. With --json the command prints one line
    with all addresses when all services are ready. The line contains the path of a file with the operator's
    password for NATS. Only the owner may read that file.
    """
    os.umask(0o077)  # only the owner may read documents, logs and snapshots
    asyncio.run(_up(data_dir, port, timeout, auth, verbose=verbose, as_json=as_json))


async def _up(data_dir: Path, port: int, within: float, auth: AuthMode, *, verbose: bool, as_json: bool) -> None:
    out, err = render.console(), render.console(stderr=True)
    stack = Stack(data_dir, port, auth=auth.value, report=reporter(err), echo=echoer(err) if verbose else None)
    with contextlib.suppress(asyncio.CancelledError), cancelled_by_signals(stack.kill):
        try:
            with render.StartProgress(err) as progress:
                await stack.start(progress.update, within=within)
            if as_json:
                render.json_line(out, stack.public_description())
            else:
                welcome(out, stack, auth)
            out.file.flush()
            await stack.wait_for_failure()
        finally:
            render.line(err, "stopping", "dim")
            await stack.stop()


def reporter(err: Console) -> Callable[[str], None]:
    """Return a function that prints the supervisor's messages."""
    return lambda message: render.line(err, message, "yellow")


def echoer(err: Console) -> Callable[[str, str], None]:
    """Return a function that shows a line of a process's log, with the process's name before it."""
    colours = dict(zip((BROKER, *SERVICES), ("white", "cyan", "magenta", "yellow", "blue", "green"), strict=True))

    def show(name: str, text: str) -> None:
        line = Text(f"{name:>10} | ", style=colours[name]) + Text(render.printable(text), style="default")
        err.print(line, soft_wrap=True)

    return show


def welcome(out: Console, stack: Stack, auth: AuthMode) -> None:
    """Show the platform's address and the first commands for a new user."""
    render.line(out, f"Causeway is ready at {stack.url}", "bold green")
    if stack.has_console:
        render.line(out, f"The console is at {stack.url}/", "bold green")
    render.line(out)
    header = ""
    if auth is not AuthMode.NONE:
        header = ' -H "api-key: $CAUSEWAY_API_KEY"'
    if AuthMode.KEYS.value in auth.value:
        render.line(out, "Create a key, which the other commands read from CAUSEWAY_API_KEY:")
        is_default = stack.data_dir == DEFAULT_DATA_DIR.absolute()
        option = "" if is_default else f" --data-dir {shlex.quote(str(stack.data_dir))}"
        command = f"{shlex.quote(command_name())} keys create --name me --roles admin{option}"
        render.line(out, f"  export CAUSEWAY_API_KEY=$({command})")
        render.line(out)
    render.line(out, "Upload a document and ask about it:")
    render.line(
        out, f"  curl {stack.url}/documents{header} -F index=handbook -F file=@examples/corpus/leave-and-absence.md"
    )
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "How many leave days may be carried over?"}],
            "context": {"overrides": {"index": "handbook"}},
        }
    )
    render.line(out, f"  curl {stack.url}/2024-04/chat{header} -H 'content-type: application/json' -d '{body}'")
    render.line(out, f"The API is described at {stack.url}/docs, logs are in {stack.data_dir / 'logs'}.")
    if stack.metrics_ports:
        ports = ", ".join(f"{name} {port}" for name, port in stack.metrics_ports.items())
        render.line(out, f"Metrics are at http://{HOST}:PORT/metrics: {ports}.")
    render.line(out, "Ctrl-C stops everything.")


def command_name() -> str:
    """Return the command for a shell: its name, or its path if it is not on ``PATH``."""
    program = sys.argv[0]
    name = "causeway"
    return name if Path(program).name != name or shutil.which(name) else program

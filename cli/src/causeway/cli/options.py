"""Options, their values, and exit codes that several commands share."""

from pathlib import Path
from typing import Annotated

import typer
from causeway.cli import stack_file

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_NATS = "nats://127.0.0.1:4222"
DEFAULT_RETRIEVER = "127.0.0.1:50051"

EXIT_CODES = "Exit codes: 0 success; 1 failure; 2 invalid command line; 3 no server at the URL; 130 interrupted."
EXIT_CODES_OF_A_STACK = (
    "Exit codes: 0 success; 1 failure; 2 invalid command line; 4 the port or the data directory is in use; "
    "130 interrupted."
)

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="CAUSEWAY_URL",
        metavar="URL",
        help="URL of the platform. Default: the URL of the local stack that uses --data-dir; if that stack does "
        f"not run, {DEFAULT_URL}.",
    ),
]
ApiKey = Annotated[
    str,
    typer.Option(
        "--api-key",
        envvar="CAUSEWAY_API_KEY",
        show_default=False,
        show_envvar=True,
        metavar="KEY",
        help="The API key, if the platform requires one. Prefer the environment variable, because other users of "
        "this machine can see command lines.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="CAUSEWAY_DATA_DIR",
        file_okay=False,
        metavar="DIRECTORY",
        help="Data directory of the local stack, which `causeway up` starts.",
    ),
]
NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats-url",
        envvar="CAUSEWAY_NATS_URL",
        metavar="URL",
        help="URL of NATS. Default: the NATS of the local stack that uses --data-dir; if that stack does not run, "
        f"{DEFAULT_NATS}.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

DEFAULT_DATA_DIR = Path(".data")


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the distinct parts of a list such as ``a,b``."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def resolve_url(url: str | None, data_dir: Path) -> str:
    """Return the given URL, else the URL of the running stack, else the default."""
    return url or str(stack_file.read(data_dir).get("url") or DEFAULT_URL)


def resolve_nats(url: str | None, data_dir: Path) -> str:
    """Return the given URL of NATS, else the NATS URL of the running stack, else the default."""
    return url or str(stack_file.read(data_dir).get("nats_url") or DEFAULT_NATS)

"""The command line: its commands, and the conversion of errors to messages and exit codes."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from causeway.cli import render
from causeway.cli.commands import (
    ask,
    backup,
    demo,
    documents,
    index,
    ingest,
    jobs,
    keys,
    mcp,
    responses,
    status,
    up,
    usage,
    users,
)
from causeway.cli.errors import CommandError, UsageError
from causeway.cli.options import EXIT_CODES, EXIT_CODES_OF_A_STACK

_FIRST_STEPS = (
    "causeway up",
    "causeway ingest examples/corpus --index handbook",
    'causeway ask "When will the pivot bearing be renewed?" --index handbook',
)
_EXIT_INTERRUPTED = 130
_MORE = "`causeway COMMAND --help` shows each command's examples and exit codes."


def build_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="causeway",
        help="Run and operate Causeway, a retrieval-augmented-generation (RAG) platform.",
        epilog=_epilog(_FIRST_STEPS, _MORE),
        callback=_causeway,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # Rich would join the lines of the examples
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(epilog=_epilog(up.EXAMPLES, EXIT_CODES_OF_A_STACK))(up.up)
    app.command(epilog=_epilog(ingest.EXAMPLES, EXIT_CODES))(ingest.ingest)
    app.command(epilog=_epilog(ask.EXAMPLES, EXIT_CODES))(ask.ask)
    app.command(epilog=_epilog(mcp.EXAMPLES, EXIT_CODES))(mcp.mcp)
    app.command(epilog=_epilog(status.EXAMPLES, EXIT_CODES))(status.status)
    app.command(epilog=_epilog(demo.EXAMPLES, EXIT_CODES_OF_A_STACK))(demo.demo)
    app.add_typer(
        _group(
            "index",
            "List, create, change, rebuild or delete indexes.",
            index.EXAMPLES,
            {
                "list": index.list_indexes,
                "show": index.show,
                "create": index.create,
                "set": index.set_settings,
                "rebuild": index.rebuild,
                "delete": index.delete,
            },
        )
    )
    app.add_typer(
        _group(
            "documents",
            "List documents, show passages, change access lists.",
            documents.EXAMPLES,
            {"list": documents.list_documents, "passages": documents.passages, "access": documents.access},
        )
    )
    app.add_typer(
        _group(
            "jobs",
            "List, cancel or resubmit ingest jobs.",
            jobs.EXAMPLES,
            {
                "list": jobs.list_jobs,
                "lanes": jobs.lanes,
                "dead": jobs.dead,
                "replay": jobs.replay,
                "cancel": jobs.cancel,
            },
        )
    )
    app.command(epilog=_epilog(usage.EXAMPLES, EXIT_CODES))(usage.usage)
    app.command(epilog=_epilog(backup.BACKUP_EXAMPLES, EXIT_CODES))(backup.backup)
    app.command(epilog=_epilog(backup.RESTORE_EXAMPLES, EXIT_CODES))(backup.restore)
    app.add_typer(
        _group(
            "keys",
            "Create, list or revoke API keys.\n\nThe command connects to NATS directly. So you can create the "
            "first key without another key.",
            keys.EXAMPLES,
            {"create": keys.create, "list": keys.list_keys, "revoke": keys.revoke},
        )
    )
    app.add_typer(
        _group(
            "responses",
            "List, show, cancel or delete stored responses. The texts are not shown.",
            responses.EXAMPLES,
            {
                "list": responses.list_responses,
                "show": responses.show,
                "cancel": responses.cancel,
                "delete": responses.delete,
            },
        )
    )
    app.add_typer(_group("users", "Delete the stored data of users.", users.EXAMPLES, {"delete": users.delete}))
    return app


def _group(
    name: str, description: str, examples: Sequence[str], commands: Mapping[str, Callable[..., object]]
) -> typer.Typer:
    """Return a command with subcommands. Each subcommand shows its own examples."""
    group = typer.Typer(
        name=name,
        help=description,
        epilog=_epilog(examples, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for command, function in commands.items():
        own = [example for example in examples if example.startswith(f"causeway {name} {command}")]
        group.command(command, epilog=_epilog(own, EXIT_CODES))(function)
    return group


def _show_version(requested: bool) -> None:
    if requested:
        render.line(render.console(), version("causeway-cli"))
        raise typer.Exit


def _causeway(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Define the options of the program; the commands do the work."""


def _epilog(examples: Sequence[str], exit_codes: str) -> str:
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{exit_codes}"


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default the process's command line; exit with its exit code."""
    try:
        try:
            build_app()(arguments)
        finally:
            if sys.stdout is not None:  # None: the caller has closed the standard output
                sys.stdout.flush()
    except CommandError as error:
        _exit(str(error), error.exit_code)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        # Python decodes an argument that is not UTF-8 to lone surrogates, which no request can contain.
        found = error.object[error.start : error.end]
        _exit(f"a value of the command line is not valid UTF-8: it contains {found!a}", UsageError.exit_code)
    except OSError as error:  # for example, the disk of the output is full
        _discard_output()
        if isinstance(error, BrokenPipeError):
            sys.exit(CommandError.exit_code)
        _exit(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 1)
    except asyncio.CancelledError:  # `cancelled_by_signals` has cancelled the command
        sys.exit(_EXIT_INTERRUPTED)


def _exit(message: str, code: int) -> NoReturn:
    """Print a message on the standard error output, and exit."""
    render.line(render.console(stderr=True), f"causeway: {message}", "red")
    sys.exit(code)


def _discard_output() -> None:
    """Discard the rest of the output if it cannot be written. Python would report the error again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

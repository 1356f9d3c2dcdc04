"""The command line: its commands, and the conversion of errors to messages and exit codes."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

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
from causeway.cli.errors import CommandError
from causeway.cli.options import EXIT_CODES, EXIT_CODES_OF_A_STACK

_FIRST_STEPS = (
    "causeway up",
    "causeway ingest examples/corpus --index handbook",
    'causeway ask "When will the pivot bearing be renewed?" --index handbook',
)
_MORE = "`causeway COMMAND --help` shows each command's examples and exit codes."


def build_app() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="causeway",
        help="One retrieval-augmented-generation platform behind every chat protocol.",
        epilog=_epilog(_FIRST_STEPS, _MORE),
        callback=_causeway,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # examples stay on their lines
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(epilog=_epilog(up.EXAMPLES, EXIT_CODES_OF_A_STACK))(up.up)
    app.command(epilog=_epilog(ingest.EXAMPLES, EXIT_CODES))(ingest.ingest)
    app.command(epilog=_epilog(ask.EXAMPLES, EXIT_CODES))(ask.ask)
    app.command(epilog=_epilog(mcp.EXAMPLES, EXIT_CODES))(mcp.mcp)
    app.command(epilog=_epilog(status.EXAMPLES, EXIT_CODES))(status.status)
    app.command(epilog=_epilog(demo.EXAMPLES, EXIT_CODES_OF_A_STACK))(demo.demo)
    of_index = typer.Typer(
        name="index",
        help="Indexes: list, settings, rebuild for another embedding model.",
        epilog=_epilog(index.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, of_one in (
        ("list", index.list_indexes),
        ("show", index.show),
        ("create", index.create),
        ("set", index.set_settings),
        ("rebuild", index.rebuild),
        ("delete", index.delete),
    ):
        of_index.command(name, epilog=_epilog(_of(f"index {name}", index.EXAMPLES), EXIT_CODES))(of_one)
    app.add_typer(of_index)
    of_documents = typer.Typer(
        name="documents",
        help="Documents: list, passages, access lists.",
        epilog=_epilog(documents.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, of_document in (
        ("list", documents.list_documents),
        ("passages", documents.passages),
        ("access", documents.access),
    ):
        epilog = _epilog(_of(f"documents {name}", documents.EXAMPLES), EXIT_CODES)
        of_documents.command(name, epilog=epilog)(of_document)
    app.add_typer(of_documents)
    of_jobs = typer.Typer(
        name="jobs",
        epilog=_epilog(jobs.EXAMPLES, EXIT_CODES),
        invoke_without_command=True,
        callback=jobs.jobs,
        rich_markup_mode=None,
    )
    for name, of_job in (
        ("lanes", jobs.lanes),
        ("dead", jobs.dead),
        ("replay", jobs.replay),
        ("cancel", jobs.cancel),
    ):
        of_jobs.command(name, epilog=_epilog(_of(f"jobs {name}", jobs.EXAMPLES), EXIT_CODES))(of_job)
    app.add_typer(of_jobs)
    app.command(epilog=_epilog(usage.EXAMPLES, EXIT_CODES))(usage.usage)
    app.command(epilog=_epilog(backup.BACKUP_EXAMPLES, EXIT_CODES))(backup.backup)
    app.command(epilog=_epilog(backup.RESTORE_EXAMPLES, EXIT_CODES))(backup.restore)
    of_keys = typer.Typer(
        name="keys",
        help="API keys: create, list, revoke. The command uses NATS directly, so the first key needs no other key.",
        epilog=_epilog(keys.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, of_key in (("create", keys.create), ("list", keys.list_keys), ("revoke", keys.revoke)):
        of_keys.command(name, epilog=_epilog(_of(f"keys {name}", keys.EXAMPLES), EXIT_CODES))(of_key)
    app.add_typer(of_keys)
    of_responses = typer.Typer(
        name="responses",
        help="Stored responses: their states, without their texts.",
        epilog=_epilog(responses.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, of_response in (
        ("list", responses.list_responses),
        ("show", responses.show),
        ("cancel", responses.cancel),
        ("delete", responses.delete),
    ):
        epilog = _epilog(_of(f"responses {name}", responses.EXAMPLES), EXIT_CODES)
        of_responses.command(name, epilog=epilog)(of_response)
    app.add_typer(of_responses)
    of_users = typer.Typer(
        name="users",
        help="Users: delete their stored data.",
        epilog=_epilog(users.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    of_users.command("delete", epilog=_epilog(users.EXAMPLES, EXIT_CODES))(users.delete)
    app.add_typer(of_users)
    return app


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


def _of(command: str, examples: Sequence[str]) -> list[str]:
    return [example for example in examples if example.startswith(f"causeway {command}")]


def _epilog(examples: Sequence[str], exit_codes: str) -> str:
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{exit_codes}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default the process's command line; exit with its exit code."""
    try:
        build_app()(arguments)
    except CommandError as error:
        render.line(render.console(stderr=True), f"causeway: {error}", "red")
        sys.exit(error.exit_code)

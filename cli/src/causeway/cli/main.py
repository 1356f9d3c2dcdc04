"""The command line: its commands, and how their errors become messages and exit codes."""

import sys
from collections.abc import Sequence

import typer
from causeway.cli import render
from causeway.cli.commands import ask, demo, ingest, jobs, keys, status, up, usage
from causeway.cli.errors import CommandError
from causeway.cli.options import EXIT_CODES, EXIT_CODES_OF_A_STACK


def build_app() -> typer.Typer:
    """All commands."""
    app = typer.Typer(
        name="causeway",
        help="One retrieval-augmented-generation platform behind every chat protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # examples stay on their lines
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(epilog=_epilog(up.EXAMPLES, EXIT_CODES_OF_A_STACK))(up.up)
    app.command(epilog=_epilog(ingest.EXAMPLES, EXIT_CODES))(ingest.ingest)
    app.command(epilog=_epilog(ask.EXAMPLES, EXIT_CODES))(ask.ask)
    app.command(epilog=_epilog(status.EXAMPLES, EXIT_CODES))(status.status)
    app.command(epilog=_epilog(demo.EXAMPLES, EXIT_CODES_OF_A_STACK))(demo.demo)
    of_jobs = typer.Typer(
        name="jobs",
        epilog=_epilog(jobs.EXAMPLES, EXIT_CODES),
        invoke_without_command=True,
        callback=jobs.jobs,
        rich_markup_mode=None,
    )
    for command in (jobs.dead, jobs.replay, jobs.cancel):
        of_jobs.command()(command)
    app.add_typer(of_jobs)
    app.command(epilog=_epilog(usage.EXAMPLES, EXIT_CODES))(usage.usage)
    of_keys = typer.Typer(
        name="keys",
        help="API keys: make, list, revoke. Speaks to NATS, not to the gateway: the first key needs no other.",
        epilog=_epilog(keys.EXAMPLES, EXIT_CODES),
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    of_keys.command("create")(keys.create)
    of_keys.command("list")(keys.list_keys)
    of_keys.command("revoke")(keys.revoke)
    app.add_typer(of_keys)
    return app


def _epilog(examples: Sequence[str], exit_codes: str) -> str:
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{exit_codes}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line, by default the process's; ends it with its exit code."""
    try:
        build_app()(arguments)
    except CommandError as error:
        render.line(render.console(stderr=True), f"causeway: {error}", "red")
        sys.exit(error.exit_code)

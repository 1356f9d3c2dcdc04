"""The command line: its commands, and how their errors become messages and exit codes."""

import sys
from collections.abc import Sequence

import typer
from causeway.cli import render
from causeway.cli.commands import ask, demo, ingest, status, up
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

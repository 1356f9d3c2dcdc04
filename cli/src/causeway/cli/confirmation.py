"""The confirmation before an irrevocable deletion."""

import sys
from typing import Annotated

import typer
from causeway.cli.errors import UsageError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Delete without a confirmation.")]


def confirmed(question: str, refusal: str) -> bool:
    """Show a question on the terminal and return whether the user confirms it.

    Args:
        question: The question.
        refusal: The error message if the command has no terminal.

    Raises:
        UsageError: The command has no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(refusal)
    return typer.confirm(question, err=True)

"""Runs a request for each of several ids, and prints the outcomes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import typer
from causeway.cli import render
from causeway.cli.errors import RequestRefused


async def act_on_each(
    ids: Sequence[str], act: Callable[[str], Awaitable[Any]], done: str, *, as_json: bool
) -> None:
    """Call a function for each id, and print each outcome at once.

    The function continues after an id that is unknown, or whose state does not allow the request. Another error
    ends it; the command has then printed the earlier outcomes.

    Args:
        ids: The ids.
        act: Sends the request for an id.
        done: The outcome of a request that succeeds, for example ``cancelled``.
        as_json: Whether to print an object for each id instead of a line.

    Raises:
        typer.Exit: At the end, with code 1, if a request was refused.
    """
    out = render.console()
    all_done = True
    for each in ids:
        refused = ""
        try:
            await act(each)
        except RequestRefused as error:
            if error.status not in (404, 409):
                raise
            refused = str(error)
            all_done = False
        if as_json:
            render.json_line(out, {"id": each, done: not refused, "message": refused or None})
        elif refused:
            render.line(out, f"{each}: {refused}", "red")
        else:
            render.line(out, f"{done}: {each}")
    if not all_done:
        raise typer.Exit(1)

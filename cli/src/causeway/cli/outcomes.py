"""Runs a request for each of several ids, and prints the outcomes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from causeway.cli import render
from causeway.cli.errors import RequestRefused


async def act_on_each(
    ids: Sequence[str], act: Callable[[str], Awaitable[Any]], done: str, *, as_json: bool
) -> bool:
    """Call a function for each id, print each outcome at once, and return whether all requests succeeded.

    The function continues after an id that is unknown, or whose state does not allow the request. Another error
    ends it; the command has then printed the earlier outcomes.

    Args:
        ids: The ids.
        act: Sends the request for an id.
        done: The outcome of a request that succeeds, for example ``cancelled``.
        as_json: Whether to print an object for each id instead of a line.
    """
    out = render.console()
    refusals = 0
    for each in ids:
        refused = ""
        try:
            await act(each)
        except RequestRefused as error:
            if error.status not in (404, 409):
                raise
            refused = str(error)
            refusals += 1
        if as_json:
            render.json_line(out, {"id": each, done: not refused, "message": refused or None})
        elif refused:
            render.line(out, f"{each}: {refused}", "red")
        else:
            render.line(out, f"{done}: {each}")
    return not refusals

"""``causeway responses``: lists, cancels and deletes the stored responses of all users."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer
from causeway.cli import render
from causeway.cli.confirmation import Yes, confirmed
from causeway.cli.errors import RequestRefused
from causeway.cli.library import Library, run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url

Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", min=1, max=100_000, metavar="NUMBER", help="Maximum number of responses to show."
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a response.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of responses.", show_default=False)]

EXAMPLES = (
    "causeway responses list",
    "causeway responses list --json | jq -r 'select(.status == \"failed\") | .id'",
    "causeway responses show resp_019a3f5c7d2e4b8f90a1b2c3d4e5f607",
    "causeway responses cancel resp_019a3f5c7d2e4b8f90a1b2c3d4e5f607",
    "causeway responses delete resp_019a3f5c7d2e4b8f90a1b2c3d4e5f607 --yes",
)
_LABELS = {
    "id": "Response",
    "status": "Status",
    "reason": "Reason",
    "model": "Model",
    "background": "Background",
    "user": "User",
    "issuer": "Issuer",
    "frontend": "Front end",
    "created_at": "Created (UTC)",
    "completed_at": "Completed (UTC)",
    "input_tokens": "Input tokens",
    "output_tokens": "Output tokens",
    "bytes": "Bytes",
}
_LISTED = ("id", "status", "model", "background", "user", "created_at", "completed_at", "output_tokens", "bytes")


def list_responses(
    limit: Limit = 50,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """List the stored responses of all users, without their texts.

    The newest response comes first. With --json the command prints one object per response, in the format of GET
    /responses/{id}.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.responses(limit + 1))
    out = render.console()
    if as_json:
        for response in found[:limit]:
            render.json_line(out, response)
    elif found:
        rows = [[_cell(response, name) for name in _LISTED] for response in found]
        render.page(out, [_LABELS[name] for name in _LISTED], rows, limit)
    else:
        render.line(out, "There are no responses.")


def show(
    response_id: Id,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Show the state of a response, without its texts."""
    found = run_with_library(url, data_dir, api_key, lambda library: library.response(response_id))
    out = render.console()
    if as_json:
        render.json_line(out, found)
        return
    for name, label in _LABELS.items():
        if found.get(name) is not None:
            render.line(out, f"{label}: {_cell(found, name)}")


def cancel(
    response_ids: Ids,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Cancel responses that run in the background.

    Their users can still read the partial texts. The exit code is 1 if a response has already ended, does not run
    in the background, or is unknown.
    """

    async def stop(library: Library, response_id: str) -> None:
        await library.cancel_response(response_id)

    found = run_with_library(url, data_dir, api_key, lambda library: _for_each(library, response_ids, stop))
    _show_results(found, "cancelled", as_json=as_json)


def delete(
    response_ids: Ids,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete responses with their events, irrevocably.

    The exit code is 1 if a response is unknown.
    """
    subject = render.counted(len(response_ids), "response")
    if not yes and not confirmed(f"Delete {subject} irrevocably?", f"use --yes to delete {subject}"):
        raise typer.Exit(1)

    async def remove(library: Library, response_id: str) -> None:
        await library.delete_response(response_id)

    found = run_with_library(url, data_dir, api_key, lambda library: _for_each(library, response_ids, remove))
    _show_results(found, "deleted", as_json=as_json)


async def _for_each(
    library: Library, response_ids: Sequence[str], act: Callable[[Library, str], Awaitable[None]]
) -> list[tuple[str, str]]:
    """Call a function for each response; return each id with the reason of its refusal, or an empty text."""
    found = []
    for response_id in response_ids:
        try:
            await act(library, response_id)
        except RequestRefused as error:
            if error.status not in (404, 409):
                raise
            found.append((response_id, str(error)))
        else:
            found.append((response_id, ""))
    return found


def _show_results(found: Sequence[tuple[str, str]], done: str, *, as_json: bool) -> None:
    out = render.console()
    for response_id, refused in found:
        if as_json:
            entry = {"id": response_id, done: not refused, "message": refused or None}
            render.json_line(out, entry)
        elif refused:
            render.line(out, f"{response_id}: {refused}", "red")
        else:
            render.line(out, f"{done}: {response_id}")
    if any(refused for _, refused in found):
        raise typer.Exit(1)


def _cell(response: dict[str, Any], name: str) -> str:
    value = response.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)[:19].replace("T", " ") if name.endswith("_at") else str(value)

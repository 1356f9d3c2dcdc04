"""``causeway responses``: lists, cancels and deletes the stored responses of all users."""

from typing import Annotated, Any

import typer
from causeway.cli import render
from causeway.cli.confirmation import Yes, confirmed
from causeway.cli.library import run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url
from causeway.cli.outcomes import act_on_each

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
    run_with_library(
        url,
        data_dir,
        api_key,
        lambda library: act_on_each(response_ids, library.cancel_response, "cancelled", as_json=as_json),
    )


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

    run_with_library(
        url,
        data_dir,
        api_key,
        lambda library: act_on_each(response_ids, library.delete_response, "deleted", as_json=as_json),
    )


def _cell(response: dict[str, Any], name: str) -> str:
    value = response.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)[:19].replace("T", " ") if name.endswith("_at") else str(value)

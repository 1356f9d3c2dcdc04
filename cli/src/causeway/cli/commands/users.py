"""``causeway users``: deletes the stored data of a user."""

from typing import Annotated

import typer
from causeway.cli import render
from causeway.cli.confirmation import Yes, confirmed
from causeway.cli.library import Library, run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.", show_default=False)]
Issuer = Annotated[
    str,
    typer.Option(
        "--issuer",
        metavar="URL",
        help="Issuer of the user's OpenID Connect tokens. Leave it out for users of API keys.",
        show_default=False,
    ),
]

EXAMPLES = (
    "causeway users delete ann@example.com --yes",
    "causeway users delete ann@example.com --issuer https://id.example.com",
)


def delete(
    name: Name,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    issuer: Issuer = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the stored data of a user irrevocably.

    The command deletes the responses, conversations, chats and sessions of the user. Documents remain.
    """
    subject = f"all stored data of {name!r} except documents"
    if not yes and not confirmed(f"Delete {subject} irrevocably?", f"use --yes to delete {subject}"):
        raise typer.Exit(1)

    async def remove(library: Library) -> dict[str, int]:
        return await library.delete_user(name, issuer)

    deleted = run_with_library(url, data_dir, api_key, remove)
    if as_json:
        render.json_line(render.console(), {"user": name, "deleted": deleted})
    else:
        counts = ", ".join(f"{count} {kind}" for kind, count in deleted.items())
        render.line(render.console(), f"deleted: {counts}")

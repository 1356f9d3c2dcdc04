"""``causeway documents``: the documents of an index, their passages and their access lists."""

from typing import Annotated, Any

import typer
from causeway.cli import render
from causeway.cli.errors import CommandError, UsageError
from causeway.cli.ingesting import wait_for_job
from causeway.cli.library import Library, run_with_library
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url

Index = Annotated[
    str,
    typer.Option(
        "--index", "-i", metavar="INDEX", help="The index that contains the documents.", show_default=False
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="DOCUMENT", help="The name or the id of the document.", show_default=False)
]
Limit = Annotated[
    int,
    typer.Option("--limit", "-n", min=1, max=100_000, metavar="NUMBER", help="Maximum number of entries to show."),
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", "-u", metavar="ID", help="A user who may see the document. Repeatable."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="ID", help="A group that may see the document. Repeatable."),
]
ToAll = Annotated[bool, typer.Option("--all", help="Let all callers of the tenant see the document.")]

_SIZES = ("B", "kB", "MB", "GB")

EXAMPLES = (
    "causeway documents list --index handbook",
    "causeway documents list --index handbook --json | jq -r .sourcefile",
    "causeway documents passages safety-manual.pdf --index handbook",
    "causeway documents passages safety-manual.pdf --index handbook --json | jq -r .text",
    "causeway documents access safety-manual.pdf --index handbook",
    "causeway documents access safety-manual.pdf --index handbook --user ann --group crew",
    "causeway documents access safety-manual.pdf --index handbook --all",
)


def list_documents(
    index: Index,
    limit: Limit = 100,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """List the documents of an index.

    The list contains only the documents that you may see. With --json the command prints one object per document,
    in the format of GET /documents.
    """
    found = run_with_library(url, data_dir, api_key, lambda library: library.stored_documents(index, limit + 1))
    out = render.console()
    if as_json:
        for document in found[:limit]:
            render.json_line(out, document)
        return
    if not found:
        render.line(
            out,
            f"The index has no documents that you may see; `causeway ingest FILES --index {index}` adds documents.",
        )
        return
    rows = [
        (
            str(document["sourcefile"]),
            str(document["content_type"]),
            _size(int(document["size_bytes"])),
            _readers(document),
        )
        for document in found
    ]
    render.page(out, ("Document", "Type", "Size", "Who may see it"), rows, limit)


def passages(
    name: Name,
    index: Index,
    limit: Limit = 50,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    as_json: Json = False,
) -> None:
    """Show the passages of a document, in their order.

    Passages are the texts that searches return. With --json the command prints one object per passage, in the
    format of GET /indexes/{index}/documents/{id}/passages.
    """

    async def read(library: Library) -> tuple[list[dict[str, Any]], int]:
        document = await _find(library, index, name)
        return await library.passages(index, document["document_id"], limit)

    found, total = run_with_library(url, data_dir, api_key, read)
    out = render.console()
    if as_json:
        for passage in found:
            render.json_line(out, passage)
        return
    for passage in found:
        headings = " > ".join(passage["headings"])
        render.line(out, f"{passage['sourcepage']}{f' ({headings})' if headings else ''}", "bold")
        render.line(out, str(passage["text"]))
        render.line(out)
    if total > len(found):
        render.line(out, f"{len(found)} of {total:,} passages; --limit shows more.", "dim")


def access(
    name: Name,
    index: Index,
    users: Users = None,
    groups: Groups = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    to_all: ToAll = False,
    as_json: Json = False,
) -> None:
    """Show or change who may see a document.

    Without --user, --group and --all the command shows the access list. With one of these options it replaces the
    users and the groups in the list, and waits until the job has ended. With --json it prints the document in the
    format of GET /documents.
    """
    oids, names = list(dict.fromkeys(users or ())), list(dict.fromkeys(groups or ()))
    if to_all and (oids or names):
        raise UsageError("--all removes the access list; leave out --user and --group")

    async def change(library: Library) -> dict[str, Any]:
        document = await _find(library, index, name)
        if not (oids or names or to_all):
            return document
        job = await wait_for_job(library, await library.change_access(index, document["document_id"], oids, names))
        if job.state not in ("succeeded", "unchanged"):
            raise CommandError(f"the access list did not change: the job {job.id} is {job.state}: {job.message}")
        return {**document, "oids": oids, "groups": names}

    document = run_with_library(url, data_dir, api_key, change)
    if as_json:
        render.json_line(render.console(), document)
    else:
        render.line(render.console(), f"{document['sourcefile']}: {_readers(document)}")


async def _find(library: Library, index: str, name: str) -> dict[str, Any]:
    document = await library.find_document(index, name)
    if document is None:
        raise CommandError(
            f"index {index!r} has no document {name!r} that you may see; `causeway documents list --index {index}` "
            "lists the names"
        )
    return document


def _readers(document: dict[str, Any]) -> str:
    readers = [*document["oids"], *(f"group {group}" for group in document["groups"])]
    return ", ".join(readers) if readers else "all callers of the tenant"


def _size(count: float) -> str:
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_SIZES[-1]}"

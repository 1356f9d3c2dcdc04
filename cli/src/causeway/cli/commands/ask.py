"""``causeway ask``: sends a question, and shows the streamed answer and its sources."""

import asyncio
import contextlib
import dataclasses
import enum
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from causeway.cli import render
from causeway.cli.answers import Answer, Step
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, RequestRefused
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url, resolve_url
from rich.console import Console


class Mode(enum.StrEnum):
    """The kind of search."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


Question = Annotated[str, typer.Argument(metavar="QUESTION", help="The question about the documents of the index.")]
Index = Annotated[
    str | None,
    typer.Option(
        "--index", "-i", metavar="INDEX", help="The index to search. Default: the platform's default index."
    ),
]
SearchMode = Annotated[Mode, typer.Option(help="Search with vectors and text, only vectors, or only text.")]
Trace = Annotated[
    bool, typer.Option("--trace", help="Show the time of each step, including the steps within the services.")
]
Top = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="NUMBER", help="Maximum number of passages for the answer. Default: the platform's default."
    ),
]

_MAX_LISTED_INDEXES = 20

EXAMPLES = (
    'causeway ask "When will the pivot bearing be renewed?" --index handbook',
    'causeway ask "How many leave days may be carried over?" --index handbook --mode text --top 5',
    'causeway ask "When will the pivot bearing be renewed?" --index handbook --json | jq -r .answer',
    'causeway ask "When will the pivot bearing be renewed?" --index handbook --trace',
)


def ask(
    question: Question,
    index: Index = None,
    mode: SearchMode = Mode.HYBRID,
    top: Top = None,
    url: Url = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    api_key: ApiKey = "",
    *,
    traced: Trace = False,
    as_json: Json = False,
) -> None:
    """Ask a question and show the answer while it streams.

    After the answer, the command shows the cited sources and the times of the steps.
    """
    overrides: dict[str, object] = {"retrieval_mode": mode.value}
    if top is not None:
        overrides["top"] = top
    if index is not None:
        overrides["index"] = index
    asyncio.run(_ask(Client(resolve_url(url, data_dir), api_key=api_key), question, overrides, traced, as_json))


async def _ask(platform: Client, question: str, overrides: dict[str, object], traced: bool, as_json: bool) -> None:
    out = render.console()
    async with platform as client, _listing_indexes(client):
        if as_json:
            answer = await client.ask_streaming(question, overrides, lambda _: None)
            trace = {"trace": [_step_object(step) for step in answer.trace]} if traced else {}
            render.json_line(out, as_object(answer) | trace)
            return
        answer = await stream(client, out, question, overrides)
        render.footnotes(out, answer, traced=traced)


@contextlib.asynccontextmanager
async def _listing_indexes(client: Client) -> AsyncIterator[None]:
    """Add the names of the existing indexes to the error about a missing index."""
    try:
        yield
    except RequestRefused as error:
        if error.status != 404:
            raise
        try:
            found = [str(name) for name in await client.call("GET", "/indexes")]
        except CommandError:  # a failed listing must not hide the first error
            raise error from None
        known = f"Existing indexes: {', '.join(found[:_MAX_LISTED_INDEXES])}." if found else "No index exists."
        remedy = "Choose one with --index" if found else "`causeway ingest FILES --index NAME` creates an index"
        raise RequestRefused(
            f"{error.message} {known} {remedy}.", status=error.status, trace_id=error.trace_id
        ) from error


async def stream(client: Client, out: Console, question: str, overrides: dict[str, object]) -> Answer:
    """Show the answer while it streams, and return it."""
    has_text = False

    def show(text: str) -> None:
        nonlocal has_text
        has_text = True
        render.piece(out, text)

    try:
        return await client.ask_streaming(question, overrides, show)
    finally:
        if has_text:
            render.line(out)


def _step_object(step: Step) -> dict[str, object]:
    inner = {"steps": [_step_object(inner_step) for inner_step in step.inner]} if step.inner else {}
    return {"name": step.title, "duration_ms": step.milliseconds, **inner}


def as_object(answer: Answer) -> dict[str, object]:
    """Return the answer as JSON data."""
    return {
        "answer": answer.text,
        "citations": [dataclasses.asdict(citation) for citation in answer.citations],
        "sources": answer.sources,
        "steps": [{"title": step.title, "duration_ms": step.milliseconds} for step in answer.steps],
        "first_ms": answer.first_ms,
        "total_ms": answer.total_ms,
        "trace_id": answer.trace_id or None,
    }

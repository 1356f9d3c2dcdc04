"""``causeway demo``: starts the platform, ingests the sample corpus, and shows three cited answers."""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from causeway.cli import render
from causeway.cli.answers import Answer, server_timing
from causeway.cli.client import Client
from causeway.cli.commands.ask import stream
from causeway.cli.commands.up import Timeout, Verbose, echoer, reporter
from causeway.cli.errors import CommandError
from causeway.cli.ingesting import Source, find, ingest
from causeway.cli.signals import cancelled_by_signals
from causeway.cli.stack import Stack
from causeway.cli.watchers import BarsWatcher, LinesWatcher, summary
from rich.console import Console

_INDEX = "demo"
_OVERRIDES: dict[str, object] = {"index": _INDEX, "retrieval_mode": "hybrid"}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the sample corpus, and the page or file that the answer must cite."""

    text: str
    source: str


_STREAMED = Question(
    "What should the crew do when an electric car is burning on the car deck?", "safety-manual.pdf#page=3"
)
_WHOLE = Question("When will the pivot bearing be renewed?", "brannoch-bridge-maintenance-plan.pdf#page=4")
_OPENAI = Question("How many leave days may be carried over, and until when?", "leave-and-absence.md")

Corpus = Annotated[Path, typer.Option("--corpus", metavar="DIRECTORY", help="Directory of the sample corpus.")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the platform running until Ctrl-C.")]

EXAMPLES = (
    "causeway demo",
    "causeway demo --keep",
    "causeway demo --corpus ~/causeway/examples/corpus",
)


def demo(
    corpus: Corpus = Path("examples/corpus"),
    timeout: Timeout = 120,
    *,
    keep: Keep = False,
    verbose: Verbose = False,
) -> None:
    """Start the platform, ingest samples, ask questions, and stop.

    The demo sends three questions about the sample corpus, each to a different route of the HTTP API. It uses a
    temporary directory and free ports. The demo fails if an answer does not cite the expected source. If it fails,
    it keeps the directory with the logs.
    """
    if not corpus.is_dir():
        raise CommandError(
            f"{corpus} does not exist; run the demo in the project's root, or name the sample corpus with --corpus"
        )
    asyncio.run(_demo(find([corpus]), timeout, keep=keep, verbose=verbose))


async def _demo(sources: list[Source], within: float, *, keep: bool, verbose: bool) -> None:
    out, err = render.console(), render.console(stderr=True)
    directory = Path(tempfile.mkdtemp(prefix="causeway-demo-"))
    stack = Stack(directory, 0, report=reporter(err), echo=echoer(err) if verbose else None)
    failed = True
    try:
        with cancelled_by_signals(stack.kill):
            try:
                await _show(out, err, stack, sources, within)
                failed = False
                if keep:
                    render.line(out, f"The platform runs at {stack.url} until Ctrl-C.", "bold green")
                    with contextlib.suppress(asyncio.CancelledError):
                        await stack.wait_for_failure()
            finally:
                render.line(out, "Stopping", "bold")
                await stack.stop()
    except asyncio.CancelledError:
        failed = False
        raise
    finally:
        if failed:
            render.line(err, f"data and logs are in {directory}", "yellow")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    render.line(out, "Done.", "bold green")


async def _show(out: Console, err: Console, stack: Stack, sources: list[Source], within: float) -> None:
    start = time.perf_counter()
    render.line(out, "Starting nats-server and five services", "bold")
    with render.StartProgress(err) as progress:
        await stack.start(progress.update, within=within)
    render.line(out, f"Ready at {stack.url} after {time.perf_counter() - start:.1f} s")
    async with Client(stack.url) as client:
        await _ingest(out, err, client, sources)
        render.line(out)
        await _question(
            out, "POST /2024-04/chat/stream", _STREAMED, lambda text: stream(client, out, text, _OVERRIDES)
        )
        await _question(out, "POST /2024-04/chat", _WHOLE, lambda text: _whole(client, out, text))
        await _question(
            out, "POST /v1/chat/completions (OpenAI)", _OPENAI, lambda text: _openai(stack.url, out, text)
        )


async def _ingest(out: Console, err: Console, client: Client, sources: list[Source]) -> None:
    start = time.perf_counter()
    render.line(out, f"Ingesting {len(sources)} documents", "bold")
    if err.is_terminal:
        with BarsWatcher(err, len(sources)) as bars:
            outcomes = await ingest(client, _INDEX, sources, bars)
    else:
        outcomes = await ingest(client, _INDEX, sources, LinesWatcher(out))
    summary(out, outcomes)
    if not all(outcome.ok for outcome in outcomes):
        raise CommandError("some documents of the sample corpus could not be ingested")
    render.line(out, f"Searchable after {time.perf_counter() - start:.1f} s")


async def _question(out: Console, route: str, question: Question, ask: Callable[[str], Awaitable[Answer]]) -> None:
    render.line(out, route, "dim")
    render.line(out, question.text, "bold cyan")
    answer = await ask(question.text)
    render.footnotes(out, answer)
    render.line(out)
    if not any(question.source in {cited.sourcepage, cited.file} for cited in answer.citations):
        cited = ", ".join(citation.sourcepage for citation in answer.citations) or "nothing"
        raise CommandError(f"the answer to {question.text!r} should cite {question.source}; it cites {cited}")


async def _whole(client: Client, out: Console, question: str) -> Answer:
    answer = await client.ask(question, _OVERRIDES)
    render.line(out, answer.text)
    return answer


async def _openai(url: str, out: Console, question: str) -> Answer:
    """Ask like any OpenAI client, with one additional member: ``index_name``."""
    body = {"messages": [{"role": "user", "content": question}], "index_name": _INDEX}
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        await http.get("/healthz")  # connects, so that the measured time does not include the connection
        start = time.perf_counter()
        response = await http.post("/v1/chat/completions", json=body)
        total_ms = (time.perf_counter() - start) * 1000
    if response.is_error:
        raise CommandError(f"/v1/chat/completions returned {response.status_code}: {response.text[:500]}")
    completion = response.json()
    answer = Answer(
        text=completion["choices"][0]["message"]["content"],
        steps=server_timing(response.headers.get("server-timing", "")),
        trace_id=response.headers.get("x-trace-id", ""),
        total_ms=total_ms,
    )
    render.line(out, answer.text)
    return answer

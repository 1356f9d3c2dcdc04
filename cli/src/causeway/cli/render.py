"""Prints the output: colours and bars on a terminal, plain lines elsewhere, and JSON for programs."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from causeway.cli.answers import Answer, Step
from rich.bar import Bar
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

# Control characters, and therefore escape sequences of terminals. Documents and answers may contain them.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAR_WIDTH = 30
_PLAIN_WIDTH = 1000
_MIN_SHOWN_MS = 0.05  # shorter times would be shown as 0.0


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not interpret markup, because brackets are citations."""
    terminal = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if terminal.is_terminal:
        return terminal
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, color_system=None, width=_PLAIN_WIDTH)


def printable(text: str) -> str:
    """Return the text without control characters other than tabs and line feeds. Lone surrogates are escaped."""
    return _CONTROLS.sub("", _encodable(text))


def _encodable(text: str) -> str:
    """Return the text with escapes for lone surrogates, which names of files that are not UTF-8 contain."""
    return text.encode(errors="backslashreplace").decode()


def line(out: Console, text: str = "", style: str | None = None) -> None:
    """Print one line of any length."""
    out.print(Text(printable(text), style=style or ""), soft_wrap=True)


def json_line(out: Console, body: object) -> None:
    """Print an object as one line of JSON."""
    out.file.write(_encodable(json.dumps(body, ensure_ascii=False)) + "\n")


def piece(out: Console, text: str) -> None:
    """Print a piece of an answer."""
    out.print(Text(printable(text)), end="", soft_wrap=True)
    out.file.flush()


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table in aligned columns."""
    grid = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        grid.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    out.print(grid)


def page(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str | Text]], limit: int) -> None:
    """Print a table with at most ``limit`` rows, and say whether the list has more."""
    table(out, columns, rows[:limit])
    if len(rows) > limit:
        line(out, "The list has more entries; --limit shows more.", "dim")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith('x') else 's'}"


def state(text: str) -> Text:
    """Return a state in its colour: green for success, red for failure, yellow otherwise."""
    good, bad = {"ok", "ready", "succeeded", "unchanged"}, {"failed", "unavailable", "not ready", "cancelled"}
    return Text(printable(text), style="green" if text in good else "red" if text in bad else "yellow")


def footnotes(out: Console, answer: Answer, *, traced: bool = False) -> None:
    """Print the citations and the times of an answer; with ``traced``, its trace in place of the times."""
    if citations := answer.citations:
        line(out, "Cited", "bold")
        for number, citation in enumerate(citations, 1):
            page = f", page {citation.page}" if citation.page else ""
            line(out, f"  {number}. {citation.file}{page}")
    elif answer.sources:
        line(out, f"The answer cites no source; {counted(len(answer.sources), 'passage')} found.", "yellow")
    if traced:
        trace(out, answer)
        return
    time_line(out, answer)
    if answer.trace_id:
        line(out, f"Trace {answer.trace_id}", "dim")


def trace(out: Console, answer: Answer) -> None:
    """Print the steps of an answer as a tree with their times, and the trace's id."""
    line(out, f"Trace {answer.trace_id}" if answer.trace_id else "Trace", "bold")
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for depth, step in _flat(answer.trace):
        grid.add_row(Text(f"{'  ' * depth}{printable(step.title)}"), Text(f"{step.milliseconds:.3f} ms"))
    grid.add_row(Text("  whole answer, measured here"), Text(f"{answer.total_ms:.3f} ms"))
    out.print(grid)


def _flat(steps: Iterable[Step], depth: int = 1) -> Iterator[tuple[int, Step]]:
    for step in steps:
        yield depth, step
        yield from _flat(step.inner, depth + 1)


def time_line(out: Console, answer: Answer) -> None:
    """Print the steps of an answer as bars on one scale, and the locally measured times."""
    steps = [step for step in answer.steps if step.milliseconds >= _MIN_SHOWN_MS]
    if answer.first_ms is not None:
        steps.append(Step("first text, measured here", answer.first_ms))
    steps.append(Step("whole answer, measured here", answer.total_ms))
    longest = max(step.milliseconds for step in steps) or 1.0
    line(out, "Time", "bold")
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, width=_BAR_WIDTH)
    grid.add_column(justify="right", no_wrap=True)
    for step in steps:
        bar = Bar(longest, 0, step.milliseconds, width=_BAR_WIDTH, color="cyan")
        grid.add_row(Text(f"  {printable(step.title)}"), bar, Text(f"{step.milliseconds:.1f} ms"))
    out.print(grid)


class StartProgress:
    """A context manager that shows the start of a stack; `update` receives the state of each process."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._ready: set[str] = set()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=out,
            transient=True,
            disable=not out.is_terminal,
        )
        self._task = self._progress.add_task("Starting", total=None)

    def __enter__(self) -> Self:
        """Show the progress; return the object."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Remove the progress from the terminal."""
        self._progress.stop()

    def update(self, states: Mapping[str, str]) -> None:
        """Show the states; a process with the state ``ok`` is ready."""
        ready = {name for name, state in states.items() if state == "ok"}
        waiting = [name for name in states if name not in ready]
        self._progress.update(
            self._task, description=f"Starting {', '.join(waiting)}", completed=len(ready), total=len(states)
        )
        if not self._out.is_terminal:
            for name in states:
                if name in ready - self._ready:
                    line(self._out, f"{name} is ready")
        self._ready |= ready

"""What people see. Colours, bars and tables on a terminal; plain lines, without a control character, elsewhere."""

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

# Everything that moves a terminal's cursor or changes its state; text of documents and models may hold it.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BAR_WIDTH = 30
_PLAIN_WIDTH = 1000
_SHORTEST_MS = 0.05  # what would be shown as 0.0


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: brackets are citations, not markup."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made = Console(
            stderr=stderr, markup=False, highlight=False, emoji=False, color_system=None, width=_PLAIN_WIDTH
        )
    return made


def printable(text: str) -> str:
    """The text without control characters other than tabs and line ends."""
    return _CONTROLS.sub("", text)


def line(out: Console, text: str = "", style: str | None = None) -> None:
    """One line, however long."""
    out.print(Text(printable(text), style=style or ""), soft_wrap=True)


def piece(out: Console, text: str) -> None:
    """A piece of an answer, as it comes."""
    out.print(Text(printable(text)), end="", soft_wrap=True)
    out.file.flush()


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """A table: with rules on a terminal, in aligned columns elsewhere."""
    made = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for row in rows:
        made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    out.print(made)


def counted(number: int, noun: str) -> str:
    """The number and its noun, in the plural where it is not one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def state(text: str) -> Text:
    """A state in its colour."""
    good, bad = {"ok", "ready", "succeeded", "unchanged"}, {"failed", "unavailable", "not ready", "cancelled"}
    return Text(printable(text), style="green" if text in good else "red" if text in bad else "yellow")


def footnotes(out: Console, answer: Answer, *, traced: bool = False) -> None:
    """Below an answer: what it cites, where its time went, its trace; all of it where that is wanted."""
    if citations := answer.citations:
        line(out, "Cited", "bold")
        for number, citation in enumerate(citations, 1):
            page = f", page {citation.page}" if citation.page else ""
            line(out, f"  {number}. {citation.file}{page}")
    elif answer.sources:
        line(out, f"Nothing is cited; {counted(len(answer.sources), 'passage')} found.", "yellow")
    if traced:
        trace(out, answer)
        return
    time_line(out, answer)
    if answer.trace_id:
        line(out, f"Trace {answer.trace_id}", "dim")


def trace(out: Console, answer: Answer) -> None:
    """The steps of an answer as a tree, each with its time as the thoughts have it, under the trace's id."""
    line(out, f"Trace {answer.trace_id}" if answer.trace_id else "Trace", "bold")
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    for depth, step in _flat(answer.trace):
        made.add_row(Text(f"{'  ' * depth}{printable(step.title)}"), Text(f"{step.milliseconds:.3f} ms"))
    made.add_row(Text("  whole answer, seen from here"), Text(f"{answer.total_ms:.3f} ms"))
    out.print(made)


def _flat(steps: Iterable[Step], depth: int = 1) -> Iterator[tuple[int, Step]]:
    for step in steps:
        yield depth, step
        yield from _flat(step.inner, depth + 1)


def time_line(out: Console, answer: Answer) -> None:
    """The steps of an answer as bars of one scale, and the times seen from here."""
    steps = [step for step in answer.steps if step.milliseconds >= _SHORTEST_MS]
    if answer.first_ms is not None:
        steps.append(Step("first text, seen from here", answer.first_ms))
    steps.append(Step("whole answer, seen from here", answer.total_ms))
    longest = max(step.milliseconds for step in steps) or 1.0
    line(out, "Time", "bold")
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, width=_BAR_WIDTH)
    made.add_column(justify="right", no_wrap=True)
    for step in steps:
        bar = Bar(longest, 0, step.milliseconds, width=_BAR_WIDTH, color="cyan")
        made.add_row(Text(f"  {printable(step.title)}"), bar, Text(f"{step.milliseconds:.1f} ms"))
    out.print(made)


class StartProgress:
    """Shows how a stack comes up. A context manager; `update` takes each process's state."""

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
        """Itself, shown."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """Wipes itself away."""
        self._progress.stop()

    def update(self, states: Mapping[str, str]) -> None:
        """Shows the states; ``ok`` is the one that is waited for."""
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

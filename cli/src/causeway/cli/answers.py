"""Types for the platform's JSON responses, and functions that parse the responses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_BRACKETS = re.compile(r"\[([^\[\]\n]+)\]")


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service as the gateway reports it.

    Attributes:
        status: ``ok`` or ``unavailable``.
        detail: The problem; empty without a problem.
        latency_ms: The latency of the gateway's health check; None if the gateway does not report it.
    """

    name: str
    status: str
    detail: str = ""
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the platform is ready, and the states of its services."""

    ready: bool
    services: tuple[ServiceState, ...]

    @classmethod
    def of(cls, ready: bool, body: Mapping[str, Any]) -> "Readiness":
        """Parse the body of ``/readyz?verbose``."""
        return cls(
            ready,
            tuple(
                ServiceState(
                    name, str(state.get("status", "")), str(state.get("detail") or ""), state.get("latency_ms")
                )
                for name, state in body["services"].items()
            ),
        )


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that could not be read; ``page`` is 0 and ``part`` is empty if they do not apply."""

    message: str
    page: int = 0
    part: str = ""

    @property
    def place(self) -> str:
        """Return the page and the part of the file; empty for the whole file."""
        return ", ".join([f"page {self.page}"] * bool(self.page) + [self.part] * bool(self.part))

    @property
    def text(self) -> str:
        """Return the page and the part, followed by the message."""
        return f"{self.place}: {self.message}" if self.place else self.message


@dataclass(frozen=True, slots=True)
class Job:
    """The state of a file's ingest job.

    Attributes:
        warnings: The first warnings; `warning_count` is the number of all warnings.
    """

    id: str
    state: str
    document_id: str = ""
    pages_done: int = 0
    pages_total: int = 0
    chunks_done: int = 0
    chunks_total: int = 0
    reason: str = ""
    message: str = ""
    stage: str = ""
    percent: int = 0
    index: str = ""
    sourcefile: str = ""
    updated_at: str = ""
    warnings: tuple[JobWarning, ...] = ()
    warning_count: int = 0

    @property
    def has_ended(self) -> bool:
        """Return whether the job has ended."""
        return self.state in {"succeeded", "unchanged", "failed", "cancelled"}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Job":
        """Parse a job resource."""
        progress, error = body.get("progress") or {}, body.get("error") or {}
        return cls(
            id=str(body["id"]),
            state=str(body.get("state") or "dead"),
            document_id=str(body.get("document_id") or ""),
            pages_done=int(progress.get("pages_done") or 0),
            pages_total=int(progress.get("pages_total") or 0),
            chunks_done=int(progress.get("chunks_done") or 0),
            chunks_total=int(progress.get("chunks_total") or 0),
            reason=str(error.get("reason") or ""),
            message=str(error.get("message") or ""),
            stage=str(body.get("stage") or body.get("state") or "dead"),
            percent=int(body.get("percent") or 0),
            index=str(body.get("index") or ""),
            sourcefile=str(body.get("sourcefile") or ""),
            updated_at=str(body.get("updated_at") or body.get("died_at") or ""),
            warnings=tuple(
                JobWarning(str(warning["message"]), int(warning.get("page") or 0), str(warning.get("part") or ""))
                for warning in body.get("warnings") or ()
            ),
            warning_count=int(body.get("warning_count") or 0),
        )


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An indexed document.

    Attributes:
        sha256: The SHA-256 of the file.
        from_file: True if the document was uploaded as a file, False if it was sent as text.
    """

    id: str
    name: str
    sha256: str
    from_file: bool

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "StoredDocument":
        """Parse an entry of ``GET /documents``."""
        return cls(
            str(body["document_id"]), str(body["sourcefile"]), str(body["sha256"]), bool(body["has_original"])
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an answer with its duration. The called service reported the ``inner`` steps."""

    title: str
    milliseconds: float
    inner: tuple["Step", ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A source that an answer cites; ``page`` is empty if the name does not contain a page."""

    sourcepage: str
    file: str
    page: str

    @classmethod
    def of(cls, sourcepage: str) -> "Citation":
        """Parse ``file#page=N``, or a file's name."""
        file, _, page = sourcepage.partition("#page=")
        return cls(sourcepage, file, page)


@dataclass(slots=True)
class Answer:
    """An answer, which grows while it streams.

    Attributes:
        sources: Names of the passages for the answer; empty if the protocol does not send them.
        steps: The steps with the platform's durations, from the thoughts.
        trace: The same steps, with the inner steps of the called services.
        total_ms: Milliseconds from the question to the last byte, measured by the client.
        first_ms: Milliseconds from the question to the first piece of text, measured by the client; None for an
            answer in one piece.
    """

    text: str = ""
    sources: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    trace: list[Step] = field(default_factory=list)
    trace_id: str = ""
    total_ms: float = 0.0
    first_ms: float | None = None

    @property
    def citations(self) -> list[Citation]:
        """Return the sources that the text cites in square brackets, in its order, without duplicates."""
        names = dict.fromkeys(_BRACKETS.findall(self.text))
        return [Citation.of(name) for name in names if not self.sources or name in self.sources]

    def add_context(self, body: Mapping[str, Any]) -> None:
        """Add sources and steps from the ``context`` of an answer or of one of its lines."""
        context = body.get("context") or {}
        points = context.get("data_points") or {}
        if points.get("citations"):
            self.sources = [str(name) for name in points["citations"]]
        if thoughts := context.get("thoughts"):
            self.steps = _steps(thoughts)
            self.trace = [
                _trace_step(step)
                for thought in thoughts
                for step in (thought.get("props") or {}).get("steps") or ()
            ]


def _trace_step(step: Mapping[str, Any]) -> Step:
    inner = tuple(_trace_step(inner_step) for inner_step in step.get("steps") or ())
    return Step(str(step.get("name") or ""), float(step.get("duration_ms") or 0), inner)


def _steps(thoughts: Sequence[Mapping[str, Any]]) -> list[Step]:
    return [
        Step(str(thought.get("title") or ""), float(duration))
        for thought in thoughts
        if (duration := (thought.get("props") or {}).get("duration_ms")) is not None
    ]


def server_timing(header: str) -> list[Step]:
    """Parse the steps of a ``Server-Timing`` header (W3C Server Timing, ``name;desc="…";dur=ms``)."""
    steps = []
    for metric in header.split(","):
        name, *parameters = (part.strip() for part in metric.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        try:
            steps.append(Step(values.get("desc", name).strip('"'), float(values["dur"])))
        except (KeyError, ValueError):
            continue  # a metric without a duration
    return steps


def error_message(body: object) -> str:
    """Return the message of an error body, from ``detail`` or ``error``; empty if it has no message."""
    if not isinstance(body, Mapping):
        return ""
    for key in ("detail", "error"):
        value = body.get(key)
        if isinstance(value, Mapping):
            value = value.get("message")
        if isinstance(value, list):  # one entry for each invalid field
            value = "; ".join(
                f"{'.'.join(str(part) for part in entry.get('loc', ()))}: {entry.get('msg', '')}"
                for entry in value
                if isinstance(entry, Mapping)
            )
        if isinstance(value, str) and value:
            return value
    return ""

"""Structured logs: JSON lines in containers, colours on a terminal, and the trace id in the lines of a trace."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any, TextIO

import structlog
from opentelemetry import trace

from servicekit.settings import ServiceSettings


def configure(service: str, settings: ServiceSettings) -> None:
    """Send the logs and warnings of the process and its libraries to stderr in one format."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    json_lines = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if json_lines
        else [_escaped, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_stack)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )

    def add_service(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = service
        return event

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[add_service, structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # At INFO, this logger writes a line for every request to a model server. Traces already contain these requests.
    logging.getLogger("httpx2").setLevel(max(level, logging.WARNING))
    logging.getLogger("grpc._cython.cygrpc").addFilter(_shorten_ended_call)
    logging.captureWarnings(True)


@contextlib.contextmanager
def logging_disabled() -> Iterator[None]:
    """Disable structlog's loggers in the block. Commands use this if they print errors themselves."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        yield
    finally:
        structlog.configure(**before)


def _shorten_ended_call(record: logging.LogRecord) -> bool:
    """Make a warning of the error that gRPC logs, with a stack trace, if it cannot send a response.

    Usually the caller has left. A response above the maximum size has the same error, and the caller logs it, too.
    """
    if record.getMessage().startswith("ExecuteBatchError raised in core by servicer method"):
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return record.levelno >= logging.getLogger().level


def _escaped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters for the terminal, because the log contains paths and names that clients chose."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = _printable(value)
    return event


def _stack(stream: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Write a traceback without the values of variables.

    If `rich` is installed, structlog's default formatter writes these values, which may be secrets.
    """
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exception)
    stream.write("\n".join(map(_printable, text.getvalue().split("\n"))))


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _trace_ids(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = format(context.trace_id, "032x")
    return event

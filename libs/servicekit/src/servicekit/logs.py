"""Structured logs: JSON lines in containers, colours on a terminal, and the trace id in every line."""

import contextlib
import logging
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

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
        # Plain stack traces: with `rich`, the default renderer prints the values of variables, including secrets.
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
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
    # This logger would write a line for every request to a model server, which traces already show.
    logging.getLogger("httpx2").setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)


@contextlib.contextmanager
def nothing_is_logged() -> Iterator[None]:
    """Disable logging in the block, for a command that reports errors to its user itself."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    try:
        yield
    finally:
        structlog.configure(**before)


def _trace_ids(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = format(context.trace_id, "032x")
    return event

"""Runs a service process: reads the settings, configures logs and traces, and handles signals."""

import argparse
import asyncio
import gc
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import structlog
import uvloop
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from pydantic_settings import SettingsError

from servicekit import logs, metrics, telemetry, tls
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.settings import ServiceSettings, unknown_variables

S = TypeVar("S", bound=ServiceSettings)
_log = structlog.get_logger(__name__)

EXIT_CONFIGURATION = 78
"""Exit code for an invalid configuration, which a restart cannot fix (``EX_CONFIG`` of sysexits.h)."""


_COLLECT_AFTER = 50_000
"""Number of new objects after which Python collects garbage. With the default of 700, the collector runs many times
a second under load and uses 8 % of a gateway's time."""

_EXIT_SECONDS = 3.0
"""Seconds that a stopped service waits for its threads before the process exits without them.

The resolution of an unknown host name can block a thread for up to a minute, and each attempt to connect may have
started such a thread. An exit during the resolution loses no data."""


def run(
    service: str,
    settings_type: type[S],
    serve: Callable[[S, asyncio.Event], Awaitable[None]],
    arguments: Sequence[str] | None = None,
    *,
    own_metrics: bool = False,
) -> int:
    """Run a service until SIGTERM or SIGINT.

    Args:
        service: The name of the service in logs and traces.
        settings_type: The class of the settings. Only this function reads them from the environment.
        serve: Runs the service until the event is set.
        arguments: The command-line arguments; None: those of the process (``sys.argv[1:]``).
        own_metrics: Whether this function leaves the metrics to the service, which serves its own or has none.

    Returns:
        The exit code of the process: 0 after an orderly stop, 1 after a failure, `EXIT_CONFIGURATION` if the
        environment or a configured file is invalid. Stderr or the log contains the reason.
    """
    parser = argparse.ArgumentParser(
        prog=f"causeway-{service}",
        description=f"Runs the {service} until SIGTERM. Settings come from the environment:",
        epilog="\n".join(_settings_help(settings_type)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    try:
        settings = settings_type()
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(("CAUSEWAY", *(str(part) for part in problem["loc"]))).upper()
            message = problem["msg"].removeprefix("Value error, ")  # pydantic adds this to a validator's message
            _print_error(f"{service}: {name}: {message}")
        return EXIT_CONFIGURATION
    except SettingsError as error:  # invalid JSON for a list or an object
        named = re.search(r'field "(\w+)"', str(error))  # the error has no attribute with the name
        name = f"CAUSEWAY_{named[1].upper()}" if named else str(error)
        _print_error(
            f'{service}: {name}: this must be JSON: a list like ["one", "two"], '
            'or an object like {"name": "value"}; '
            "docs/settings.md says which one"
        )
        return EXIT_CONFIGURATION
    logs.configure(service, settings)
    for name, similar in unknown_variables(os.environ):
        _log.warning("this variable is not a setting of any service", variable=name, similar=similar)
    provider = telemetry.configure(service, settings)
    tls.export_expiry(settings)
    # The objects that exist now live as long as the process. Exclude them from garbage collection, and collect less
    # often than by default.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        code = _run_service(runner, settings, serve, own_metrics=own_metrics)
        # The end of this block waits for the threads of the event loop. The timer limits this wait.
        exit_timer = threading.Timer(_EXIT_SECONDS, _exit, [code, provider])
        exit_timer.daemon = True
        exit_timer.start()
    exit_timer.cancel()
    telemetry.shut_down(provider)
    return code


def _new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_log_unread_error)
    return loop


def _log_unread_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task reads, except the failure of an abandoned name resolution.

    If an attempt to connect ends before the host name is resolved, uvloop abandons the resolution without reading
    its result. The attempt itself has already reported a time-out.
    """
    if type(context.get("exception")) is socket.gaierror and not isinstance(context.get("future"), asyncio.Task):
        return
    loop.default_exception_handler(context)


def _run_service(
    runner: asyncio.Runner, settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]], *, own_metrics: bool
) -> int:
    try:
        registry = CollectorRegistry()
        if settings.metrics_port is not None and not own_metrics:
            metrics.install(registry)
        with metrics.served(registry, settings.host, None if own_metrics else settings.metrics_port):
            runner.run(_serve_until_signal(settings, serve))
    except CausewayError as error:
        _log.critical("cannot continue", error=error.message, exc_info=error.__cause__)
        return EXIT_CONFIGURATION if isinstance(error, InvalidRequest) else 1
    except Exception:  # the outermost handler logs every error
        _log.critical("cannot continue", exc_info=True)
        return 1
    return 0


def _exit(code: int, provider: TracerProvider) -> None:
    """End the process without waiting for its threads."""
    telemetry.shut_down(provider)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _settings_help(settings_type: type[ServiceSettings]) -> Iterator[str]:
    for name, field in settings_type.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        shown = "" if default in (None, "") else f" [{default}]"
        yield f"  CAUSEWAY_{name.upper()}{shown}\n      {field.description}"


def _print_error(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # logs are not set up yet


async def _serve_until_signal(settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)

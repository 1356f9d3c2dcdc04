"""The frame of every service process: settings in, loop on, signals out."""

import argparse
import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import structlog
import uvloop
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from pydantic_settings import SettingsError

from servicekit import logs, metrics, telemetry, tls
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)
_log = structlog.get_logger(__name__)

EXIT_CONFIGURATION = 78
"""``EX_CONFIG`` of sysexits.h: starting again will not help."""


_COLLECT_AFTER = 50_000
"""Objects until the garbage collector looks at the young ones again. Its default of 700 makes it walk the heap
many times a second under load: 8 % of a gateway's time."""

_LEAVE_SECONDS = 3.0
"""How long a service that has ended waits for its threads. Nothing of it is lost then, but a name that cannot be
resolved holds a thread for up to a minute, and one attempt after the other to connect has asked for it."""


def run(
    service: str,
    settings_type: type[S],
    serve: Callable[[S, asyncio.Event], Awaitable[None]],
    arguments: Sequence[str] | None = None,
    *,
    own_metrics: bool = False,
) -> int:
    """Runs a service until SIGTERM or SIGINT.

    Args:
        service: Its name in logs and traces.
        settings_type: Read from the environment here and nowhere else.
        serve: The service; ends when the event is set.
        arguments: The command line without the program; the process's own where None.
        own_metrics: The service installs and serves its metrics itself.

    Returns:
        The process's exit code: 0 after an orderly end, 1 where the service could not go on (the log says why),
        `EXIT_CONFIGURATION` where the environment is wrong, or a file that it names (stderr, the log, say what).
    """
    parser = argparse.ArgumentParser(
        prog=f"causeway-{service}",
        description=f"Runs the {service} until SIGTERM. Settings come from the environment:",
        epilog="\n".join(_described(settings_type)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    try:
        settings = settings_type()
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(("CAUSEWAY", *(str(part) for part in problem["loc"]))).upper()
            _complain(f"{service}: {name}: {problem['msg']}")
        return EXIT_CONFIGURATION
    except SettingsError as error:  # a list or an object that is not JSON
        _complain(f"{service}: {error}")
        return EXIT_CONFIGURATION
    logs.configure(service, settings)
    provider = telemetry.configure(service, settings)
    tls.watch(settings)
    # What is loaded by now stays; only what requests leave behind need be looked at, and not at every turn.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = _served(runner, settings, serve, own_metrics=own_metrics)
        leaving = threading.Timer(_LEAVE_SECONDS, _leave, [code, provider])
        leaving.daemon = True
        leaving.start()
    leaving.cancel()
    telemetry.shut_down(provider)
    return code


def _served(
    runner: asyncio.Runner, settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]], *, own_metrics: bool
) -> int:
    try:
        registry = CollectorRegistry()
        if settings.metrics_port is not None and not own_metrics:
            metrics.install(registry)
        with metrics.served(registry, settings.host, None if own_metrics else settings.metrics_port):
            runner.run(_until_signal(settings, serve))
    except CausewayError as error:
        _log.critical("cannot go on", error=error.message, exc_info=error.__cause__)
        return EXIT_CONFIGURATION if isinstance(error, InvalidRequest) else 1
    except Exception:  # the boundary: the log has what would else go past it
        _log.critical("cannot go on", exc_info=True)
        return 1
    return 0


def _leave(code: int, provider: TracerProvider) -> None:
    telemetry.shut_down(provider)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _described(settings_type: type[ServiceSettings]) -> Iterator[str]:
    for name, field in settings_type.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        shown = "" if default in (None, "") else f" [{default}]"
        yield f"  CAUSEWAY_{name.upper()}{shown}\n      {field.description}"


def _complain(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201  # logs are not set up yet


async def _until_signal(settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    await serve(settings, stop)

"""Signals for commands that run a stack: the first stops it gracefully, the second immediately."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def cancelled_by_signals(on_repeat: Callable[[], None]) -> Iterator[None]:
    """Cancel the current task on SIGINT, SIGTERM or SIGHUP; call ``on_repeat`` on each further signal.

    If the process ignores SIGHUP, as under ``nohup``, it continues to ignore this signal.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    received = False

    def handle() -> None:
        nonlocal received
        if received:
            on_repeat()
        else:
            received = True
            task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)

"""Signals for commands that run a stack: the first one ends them in order, the second one immediately."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def cancelled_by_signals(again: Callable[[], None]) -> Iterator[None]:
    """Cancel the current task on SIGINT, SIGTERM or SIGHUP; call ``again`` on another signal.

    An ignored SIGHUP (``nohup``) stays ignored.
    """
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    signs = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signs.append(signal.SIGHUP)
    seen = False

    def handle() -> None:
        nonlocal seen
        if seen:
            again()
        else:
            seen = True
            task.cancel()

    for sign in signs:
        loop.add_signal_handler(sign, handle)
    try:
        yield
    finally:
        for sign in signs:
            loop.remove_signal_handler(sign)

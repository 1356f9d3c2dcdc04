"""Configuration files that can change while the process runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from servicekit.background_task import BackgroundTask

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Reloadable(BackgroundTask, Generic[T]):
    """The parsed content of a file, as an immutable snapshot.

    A request reads `current` once and uses this snapshot to its end. If the file cannot be read or parsed, the old
    snapshot remains in use and the problem is logged once. Only the first load raises errors. A file that becomes
    empty is invalid, because a program that is writing the file may have truncated it: without this rule, policies
    and limits would not apply until the next check.

    Args:
        path: The file.
        parse: Turns the bytes of the file into a snapshot; raises ``ValueError`` with a message for the operator.
        interval: Seconds between checks of the file.
        on_change: Called on the event loop with each new snapshot.

    Raises:
        OSError, ValueError: The first load failed.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        *,
        interval: float = 1.0,
        on_change: Callable[[T], None] | None = None,
    ) -> None:
        self._path = path
        self._parse = parse
        self._interval = interval
        self._on_change = on_change
        self._raw = path.read_bytes()
        self._current = parse(self._raw)
        self._problem = ""

    @property
    def current(self) -> T:
        """The latest valid snapshot."""
        return self._current

    def check(self) -> bool:
        """Load the file if it has changed; return whether there is a new snapshot."""
        try:
            raw = self._path.read_bytes()
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning(
                    "configuration file cannot be read; keeping the old configuration", error=self._problem
                )
            return False
        self._problem = ""
        if raw == self._raw:
            return False
        self._raw = raw
        if not raw.strip():
            _log.error(
                "configuration file is empty; keeping the old configuration; to remove all entries, write {}",
                path=str(self._path),
            )
            return False
        try:
            self._current = self._parse(raw)
        except ValueError as error:
            _log.error(
                "configuration file is invalid; keeping the old configuration",
                path=str(self._path),
                error=str(error),
            )
            return False
        except Exception:  # a defect of the parser must not end the watch; the log has the stack
            _log.exception(
                "configuration file cannot be parsed; keeping the old configuration", path=str(self._path)
            )
            return False
        _log.info("configuration reloaded", path=str(self._path))
        return True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            changed = await asyncio.to_thread(self.check)
            if changed and self._on_change is not None:
                try:
                    self._on_change(self._current)
                except Exception:  # a defect of the callback must not end the watch
                    _log.exception("a new configuration cannot be used", path=str(self._path))

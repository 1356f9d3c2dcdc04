"""The remote detectors that there are at the moment."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import aiohttp
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import of_setting

from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import RemoteConfig, parse
from guardrails.remote.detector import OpenChunker, RemoteFactory


class RemoteDetectors:
    """Remote detectors of a file, which may change; those that did not change keep their turns.

    Args:
        session: The connections that all share.
        chunkers: Those that cut for some of them.
        taken: Names of detectors that are built in.
    """

    def __init__(self, session: aiohttp.ClientSession, chunkers: Chunkers, taken: Collection[str]) -> None:
        self._chunkers = chunkers
        self._session = session
        self._taken = taken
        self._factories: dict[RemoteConfig, RemoteFactory] = {}

    def current(self) -> Sequence[RemoteFactory]:
        """Those that there are."""
        return tuple(self._factories.values())

    def load(self, path: Path) -> Reloadable[tuple[RemoteConfig, ...]]:
        """Reads the file, again when it changes while the result is entered.

        Raises:
            InvalidRequest: The file cannot be read, or is wrong.
        """
        with of_setting("guardrails_detectors_file"):
            file = Reloadable(path, lambda raw: parse(raw, str(path), self._taken), on_change=self._change)
        self._change(file.current)
        return file

    def _change(self, configs: tuple[RemoteConfig, ...]) -> None:
        self._factories = {
            config: self._factories.get(config) or RemoteFactory(config, self._session, self._chunker(config))
            for config in configs
        }

    def _chunker(self, config: RemoteConfig) -> OpenChunker | None:
        return partial(self._chunkers.chunker, config.chunker) if config.chunker is not None else None

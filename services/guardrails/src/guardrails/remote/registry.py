"""Creates the remote detectors of the configuration file, and replaces them when the file changes."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import aiohttp
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import setting_errors

from guardrails.remote.chunkers import Chunkers
from guardrails.remote.config import RemoteConfig, parse
from guardrails.remote.detector import OpenChunker, RemoteFactory


class RemoteDetectors:
    """The remote detectors of the configuration file.

    When the file changes, a detector whose entry is unchanged keeps its state, unless the entry has ``tls``: then
    the detector gets the certificates that the files contain now.

    Args:
        session: The HTTP session, which all remote detectors share.
        chunkers: The remote chunkers.
        reserved: The names of the built-in detectors, which a remote detector must not have.
    """

    def __init__(self, session: aiohttp.ClientSession, chunkers: Chunkers, reserved: Collection[str]) -> None:
        self._chunkers = chunkers
        self._session = session
        self._reserved = reserved
        self._factories: dict[RemoteConfig, RemoteFactory] = {}

    def current(self) -> Sequence[RemoteFactory]:
        """Return the factories of the detectors that the file lists now."""
        return tuple(self._factories.values())

    def load(self, path: Path) -> Reloadable[tuple[RemoteConfig, ...]]:
        """Load the file. Inside ``async with``, the returned object reloads the file when it changes.

        Raises:
            InvalidRequest: The file cannot be read, or is invalid.
        """
        with setting_errors("guardrails_detectors_file"):
            file = Reloadable(path, lambda raw: parse(raw, str(path), self._reserved), on_change=self._change)
        self._change(file.current)
        return file

    def _change(self, configs: tuple[RemoteConfig, ...]) -> None:
        self._factories = {
            config: self._factories.get(config) or RemoteFactory(config, self._session, self._chunker(config))
            for config in configs
        }

    def _chunker(self, config: RemoteConfig) -> OpenChunker | None:
        return partial(self._chunkers.chunker, config.chunker) if config.chunker is not None else None

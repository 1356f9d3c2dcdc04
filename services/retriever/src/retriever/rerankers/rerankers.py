"""The rerankers that the service has, by their names."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from servicekit.errors import NotFound
from servicekit.yaml_file import of_setting

from retriever.rerankers import file
from retriever.rerankers.guarded import Guarded
from retriever.rerankers.port import Reranker


class Rerankers:
    """Rerankers by name. Connections are opened by the first call, so a server may be away at the start.

    Args:
        rerankers: The first is the default; none: nothing is reranked.
    """

    def __init__(self, rerankers: Sequence[Guarded] = ()) -> None:
        self._rerankers = {each.name: each for each in rerankers}
        self.default = rerankers[0] if rerankers else None

    @classmethod
    def open(cls, path: Path | None, environ: Mapping[str, str]) -> Self:
        """The rerankers of a file; without one there are none.

        Raises:
            InvalidRequest: The file cannot be used; the message has file, line and key.
        """
        if path is None:
            return cls()
        with of_setting("rerankers_file"):
            return cls([_guarded(entry) for entry in file.read(path, environ)])

    def get(self, name: str) -> Guarded | None:
        """A reranker; the default where no name is given, None where there are none at all.

        Raises:
            NotFound: There is no such one.
        """
        if not name:
            return self.default
        if name not in self._rerankers:
            raise NotFound(f"No such reranker: '{name}'.", resource=name)
        return self._rerankers[name]

    def resting(self) -> list[tuple[float, dict[str, str]]]:
        """Which are left alone at present (1) and which are asked (0), as a gauge has it."""
        return [(float(each.is_resting()), {"causeway.reranker": name}) for name, each in self._rerankers.items()]

    async def aclose(self) -> None:
        """Closes them all."""
        async with AsyncExitStack() as closing:
            for each in self._rerankers.values():
                closing.push_async_callback(each.aclose)


def _guarded(entry: file.Entry) -> Guarded:
    return Guarded(
        _made(entry),
        entry.name,
        candidates=entry.candidates,
        required=entry.required,
        timeout=entry.timeout,
        concurrency=entry.concurrency,
        rest=entry.rest,
    )


def _made(entry: file.Entry) -> Reranker:
    # Imported where they are used: each brings a library that only who has such a server shall pay for.
    if isinstance(entry, file.HttpEntry):
        from retriever.rerankers.http import HttpReranker

        return HttpReranker(entry)
    from retriever.rerankers.triton import TritonReranker

    return TritonReranker(entry)

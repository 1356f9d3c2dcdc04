"""The interface that checks the health of a dependency."""

from typing import Protocol

from servicekit.deadline import Deadline


class Probe(Protocol):
    """Checks whether a dependency is available."""

    name: str

    async def check(self, deadline: Deadline) -> str | None:
        """Return None if the dependency is available, or a description of the problem."""
        ...

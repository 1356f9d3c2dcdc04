"""What the gateway needs to know of the health of the services behind it."""

from typing import Protocol

from servicekit.deadline import Deadline


class Probe(Protocol):
    """Says whether a dependency answers."""

    name: str

    async def check(self, deadline: Deadline) -> str | None:
        """None when it answers, else what is wrong."""
        ...

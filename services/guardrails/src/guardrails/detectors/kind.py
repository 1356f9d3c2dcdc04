"""A kind of detector: what it is called, what it can be told, how one is made."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from guardrails.detectors.params import Params, decode
from guardrails.detectors.port import Detector, Judge
from guardrails.domain import DetectorInfo, DetectorKind, Health

P = TypeVar("P", bound=Params)


@functools.cache
def _schema(params: type[Params]) -> bytes:
    """Requests look detectors up all the time, and making a schema takes long."""
    return msgspec.json.encode(msgspec.json.schema(params))


@dataclass(frozen=True, slots=True)
class Made:
    """A detector for certain parameters, what it replaces spans by, and the score below which nothing counts."""

    detector: Detector | Judge
    replacement: str
    threshold: float


class Offer(Protocol):
    """A detector that can be asked for."""

    @property
    def detector_id(self) -> str:
        """What requests call it."""
        ...

    def make(self, raw: bytes) -> Made:
        """A detector for parameters as a request has them.

        Raises:
            BadParam: A parameter is wrong.
        """
        ...

    def info(self) -> DetectorInfo:
        """What callers are told of it."""
        ...

    async def health(self) -> Health:
        """How it is."""
        ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """A kind of detector that is built in.

    Attributes:
        detector_id: What requests call it.
        description: What it does, in a sentence.
        params: What it can be told.
        build: Makes a detector; raises `BadParam`.
        streaming: It can judge a growing text before the text is complete.
        kind: What it looks at.
        probe: How it is; without one it is always well.
    """

    detector_id: str
    description: str
    params: type[P]
    build: Callable[[P], Detector | Judge]
    streaming: bool = True
    kind: DetectorKind = DetectorKind.CONTENTS
    probe: Callable[[], Awaitable[Health]] | None = None

    def make(self, raw: bytes) -> Made:
        """See `Offer.make`."""
        params = decode(raw, self.params)
        return Made(self.build(params), params.replacement, params.threshold)

    def info(self) -> DetectorInfo:
        """See `Offer.info`."""
        return DetectorInfo(self.detector_id, self.description, _schema(self.params), self.streaming, self.kind)

    async def health(self) -> Health:
        """See `Offer.health`."""
        return Health(healthy=True) if self.probe is None else await self.probe()

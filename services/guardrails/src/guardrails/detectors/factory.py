"""Factories: each makes the detectors of one id from the parameters of requests."""

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
    """Return the JSON Schema of parameters; cached, because requests look detectors up all the time."""
    return msgspec.json.encode(msgspec.json.schema(params))


@dataclass(frozen=True, slots=True)
class ConfiguredDetector:
    """A detector with its parameters.

    Attributes:
        detector: The detector.
        replacement: Replaces its spans.
        threshold: The lowest score that counts.
        about_answer: Its findings are about an answer as a whole: it does not judge texts beside the answer.
    """

    detector: Detector | Judge
    replacement: str
    threshold: float
    about_answer: bool = False


class DetectorFactory(Protocol):
    """Makes the detectors of one id. Built-in and remote detectors have one each."""

    @property
    def detector_id(self) -> str:
        """The name by which requests ask for the detector."""
        ...

    def make(self, raw: bytes) -> ConfiguredDetector:
        """Return a detector with the parameters of a request, a JSON object.

        Raises:
            BadParam: A parameter is wrong.
        """
        ...

    def info(self) -> DetectorInfo:
        """Return the description of the detector."""
        ...

    async def health(self) -> Health:
        """Return the health of the detector."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltIn(Generic[P]):
    """The factory of a built-in detector.

    Attributes:
        detector_id: The name by which requests ask for the detector.
        description: What it does, in a sentence.
        params: The type of its parameters.
        build: Makes a detector; raises `BadParam` for a value that the type lets through.
        streaming: It can judge a growing text before the text is complete.
        kind: What the detector looks at.
        probe: Returns its health; without a probe it is always healthy.
        about_answer: See `ConfiguredDetector`.
    """

    detector_id: str
    description: str
    params: type[P]
    build: Callable[[P], Detector | Judge]
    streaming: bool = True
    kind: DetectorKind = DetectorKind.CONTENTS
    probe: Callable[[], Awaitable[Health]] | None = None
    about_answer: bool = False

    def make(self, raw: bytes) -> ConfiguredDetector:
        """See `DetectorFactory.make`."""
        params = decode(raw, self.params)
        return ConfiguredDetector(self.build(params), params.replacement, params.threshold, self.about_answer)

    def info(self) -> DetectorInfo:
        """See `DetectorFactory.info`."""
        return DetectorInfo(self.detector_id, self.description, _schema(self.params), self.streaming, self.kind)

    async def health(self) -> Health:
        """See `DetectorFactory.health`."""
        return Health(healthy=True) if self.probe is None else await self.probe()

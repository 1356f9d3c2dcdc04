"""The factories of detectors. A factory builds the detectors of one id from the parameters of requests."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from detection.detectors.params import Params, decode
from detection.detectors.port import Detector, Judge
from detection.domain import DetectorInfo, DetectorKind, Health

P = TypeVar("P", bound=Params)


@functools.cache
def _schema(params: type[Params]) -> bytes:
    """Return the JSON Schema of parameters; cached, because every request looks up detectors."""
    return msgspec.json.encode(msgspec.json.schema(params))


@dataclass(frozen=True, slots=True)
class ConfiguredDetector:
    """A detector with its parameters.

    Attributes:
        detector: The detector.
        replacement: The text that replaces the spans of its detections.
        threshold: The minimum score of a detection.
        about_answer: The findings refer to a whole answer. The detector does not judge tool arguments and
            reasoning.
    """

    detector: Detector | Judge
    replacement: str
    threshold: float
    about_answer: bool = False


class DetectorFactory(Protocol):
    """Builds the detectors of one id. Each built-in and each remote detector has one factory."""

    @property
    def detector_id(self) -> str:
        """The name of the detector in requests."""
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
        detector_id: The name of the detector in requests.
        description: The purpose of the detector, in one sentence.
        params: The type of the parameters.
        build: Builds a detector; raises `BadParam` for an invalid value that the type allows.
        streaming: The detector can judge a growing text before the text is complete.
        kind: The kind of input that the detector takes.
        probe: Returns the health; None: the detector is always healthy.
        about_answer: See `ConfiguredDetector`.
        library: The digest of this library if the detector needs no other code; see `detection.shared`.
    """

    detector_id: str
    description: str
    params: type[P]
    build: Callable[[P], Detector | Judge]
    streaming: bool = True
    kind: DetectorKind = DetectorKind.CONTENTS
    probe: Callable[[], Awaitable[Health]] | None = None
    about_answer: bool = False
    library: str = ""

    def make(self, raw: bytes) -> ConfiguredDetector:
        """See `DetectorFactory.make`."""
        params = decode(raw, self.params)
        return ConfiguredDetector(self.build(params), params.replacement, params.threshold, self.about_answer)

    def info(self) -> DetectorInfo:
        """See `DetectorFactory.info`."""
        return DetectorInfo(
            self.detector_id,
            self.description,
            _schema(self.params),
            self.streaming,
            self.kind,
            library=self.library,
        )

    async def health(self) -> Health:
        """See `DetectorFactory.health`."""
        return Health(healthy=True) if self.probe is None else await self.probe()

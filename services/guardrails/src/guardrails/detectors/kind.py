"""A kind of detector: what it is called, what it can be told, how one is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from guardrails.detectors.params import Params, decode
from guardrails.detectors.port import Detector
from guardrails.domain import DetectorInfo

P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """A kind of detector.

    Attributes:
        detector_id: What requests call it.
        description: What it does, in a sentence.
        params: What it can be told.
        build: Makes a detector; raises `BadParam`.
        streaming: It can judge a growing text before the text is complete.
    """

    detector_id: str
    description: str
    params: type[P]
    build: Callable[[P], Detector]
    streaming: bool = True

    def make(self, raw: bytes) -> tuple[Detector, str]:
        """A detector for parameters as a request has them, and what it replaces spans by.

        Raises:
            BadParam: A parameter is wrong.
        """
        params = decode(raw, self.params)
        return self.build(params), params.replacement

    def info(self) -> DetectorInfo:
        """What callers are told of it."""
        schema = msgspec.json.encode(msgspec.json.schema(self.params))
        return DetectorInfo(self.detector_id, self.description, schema, self.streaming)

"""The registry of the built-in detectors."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from detection.detectors.factory import DetectorFactory
from detection.detectors.patterns.matching import Limits
from detection.shared import shared_detectors
from embedding.port import Embedder

from guardrails.detectors.child_processes import ChildProcesses
from guardrails.detectors.counting import reading_time, token_limit
from guardrails.detectors.file_type import file_type
from guardrails.detectors.groundedness.detector import groundedness
from guardrails.detectors.language import language
from guardrails.detectors.presidio.detector import pii
from guardrails.detectors.secrets import secrets
from guardrails.detectors.structure.process import CheckProcesses


@dataclass(frozen=True, slots=True)
class Resources:
    """The shared resources of the detectors.

    Attributes:
        limits: The limits of the detectors that search for patterns, or count tokens or words.
        open_embedder: Opens the embedding model; detectors call it on first use.
        model_seconds: The time limit of a request to a model.
        check_processes: The processes that parse texts.
        pii_processes: The processes that find names; None: the detector `pii` is not available.
    """

    limits: Limits
    open_embedder: Callable[[], Awaitable[Embedder]]
    model_seconds: float
    check_processes: CheckProcesses
    pii_processes: ChildProcesses | None = None


def built_in(resources: Resources) -> Sequence[DetectorFactory]:
    """Return the factories of all built-in detectors."""
    pii_processes = resources.pii_processes
    return [
        *shared_detectors(resources.limits),
        file_type(resources.check_processes),
        groundedness(resources.open_embedder, resources.model_seconds),
        language(),
        *([pii(pii_processes, resources.model_seconds)] if pii_processes is not None else []),
        reading_time(resources.limits),
        secrets(resources.limits),
        token_limit(resources.limits),
    ]

"""Helpers for tests of detectors."""

import json

from detection.detectors.factory import DetectorFactory
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Detector, Judge
from embedding.port import Embedder
from guardrails.detectors.registry import Resources
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses


def quick(factory: DetectorFactory, **params: object) -> Detector:
    """Return the configured detector, which must not be a `Judge`."""
    detector = factory.make(json.dumps(params).encode()).detector
    assert not isinstance(detector, Judge)
    return detector


def slow(factory: DetectorFactory, **params: object) -> Judge:
    """Return the configured detector, which must be a `Judge`."""
    detector = factory.make(json.dumps(params).encode()).detector
    assert isinstance(detector, Judge)
    return detector


def resources() -> Resources:
    """Return the resources of the built-in detectors, without an embedding model."""

    async def open_embedder() -> Embedder:
        raise AssertionError("the test needs no embedding model")

    return Resources(
        Limits(),
        open_embedder=open_embedder,
        model_seconds=1.0,
        check_processes=CheckProcesses(CheckLimits()),
    )

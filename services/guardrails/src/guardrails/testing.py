"""What tests of detectors need."""

import json

from guardrails.detectors.kind import Offer
from guardrails.detectors.port import Detector, Judge


def quick(offer: Offer, **params: object) -> Detector:
    """A detector of those that answer at once."""
    detector = offer.make(json.dumps(params).encode()).detector
    assert not isinstance(detector, Judge)
    return detector


def slow(offer: Offer, **params: object) -> Judge:
    """A detector of those that take their time."""
    detector = offer.make(json.dumps(params).encode()).detector
    assert isinstance(detector, Judge)
    return detector

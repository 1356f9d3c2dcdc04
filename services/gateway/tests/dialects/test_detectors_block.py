from typing import Any

import pytest
from gateway.dialects import detectors_block
from gateway.dialects.json_fields import Fields
from gateway.domain import Action, Detector, Detectors
from servicekit.errors import InvalidRequest


def parse(block: dict[str, Any]) -> Detectors:
    return detectors_block.parse(Fields(block, "detectors"))


def test_the_default_actions() -> None:
    """By default, detectors block inputs, redact passages and report findings in outputs."""
    assert parse({"input": {"a": {}}, "context": {"b": {}}, "output": {"c": {}}}) == Detectors(
        (Detector("a", Action.BLOCK),), (Detector("b", Action.REDACT),), (Detector("c", Action.REPORT),)
    )


def test_other_parameters_go_to_the_detector() -> None:
    """The gateway reads ``action`` and ``on_error``, and passes the other parameters to the detector."""
    block = {"output": {"a": {"action": "redact", "on_error": "allow", "types": ["email"]}}}
    assert parse(block).output == (Detector("a", Action.REDACT, True, b'{"types":["email"]}'),)


def test_a_detector_without_parameters_still_runs() -> None:
    """A detector whose parameters are null still runs."""
    assert parse({"input": {"a": None}}).input == (Detector("a", Action.BLOCK),)


@pytest.mark.parametrize("block", [{}, {"input": {}}, {"output": None}])
def test_an_empty_block_requests_no_detectors(block: dict[str, Any]) -> None:
    """An empty block requests no detectors."""
    assert parse(block) == Detectors()


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"sideways": {}}, "detectors.sideways"),
        ({"input": []}, "detectors.input"),
        ({"input": {"a": 1}}, "detectors.input.a"),
        ({"input": {"a": {"action": "shout"}}}, "detectors.input.a.action"),
        ({"input": {"a": {"on_error": "panic"}}}, "detectors.input.a.on_error"),
    ],
)
def test_invalid_detectors_are_refused(block: dict[str, Any], field: str) -> None:
    """A wrong direction, action or type is refused, and the error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        parse(block)
    assert caught.value.field == field

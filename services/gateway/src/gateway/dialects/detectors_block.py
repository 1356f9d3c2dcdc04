"""The ``detectors`` block of a request: ``{"input": {id: params}, "output": {id: params}}``.

It follows the guardrails ADR. Platform extensions: ``context`` (the retrieved passages), and in a detector's params
``action`` (``report``, ``redact``, ``block``) and ``on_error`` (``block``, ``allow``), which are not passed on. The
default action is the ADR's: input blocks, output reports.
"""

import msgspec

from gateway.dialects.json_fields import Fields
from gateway.domain import Action, Detector, Detectors

_DEFAULT = {"input": Action.BLOCK, "context": Action.REDACT, "output": Action.REPORT}
_ACTIONS = ("report", "redact", "block")
_OURS = ("action", "on_error")


def parse(block: Fields) -> Detectors:
    """Return the detectors that a block names.

    Raises:
        InvalidRequest: A direction, an action or a parameter is invalid.
    """
    members = dict(block.members())
    if not members:
        return Detectors()
    for name in members:
        if name not in _DEFAULT:
            raise block.wrong(name, f"is not a direction; they are {', '.join(_DEFAULT)}")
    return Detectors(*(_direction(block, name) for name in _DEFAULT))


def _direction(block: Fields, direction: str) -> tuple[Detector, ...]:
    detectors = []
    chosen = block.object(direction)
    for detector_id in chosen.names():
        # A detector without parameters (also null) still runs.
        params = chosen.object(detector_id)
        action = params.one_of("action", _ACTIONS)
        on_error = params.one_of("on_error", ("block", "allow"))
        theirs = {name: value for name, value in params.members() if name not in _OURS}
        detectors.append(
            Detector(
                detector_id,
                Action[action.upper()] if action else _DEFAULT[direction],
                allow_on_error=on_error == "allow",
                params_json=msgspec.json.encode(theirs),
                requested=True,
            )
        )
    return tuple(detectors)

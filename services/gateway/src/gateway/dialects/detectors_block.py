"""The ``detectors`` block of a request: ``{"input": {id: params}, "output": {id: params}}``.

ADR 005 of the guardrails orchestrator defines the format and the default actions: input detectors block, and output
detectors report. The platform adds the direction ``context`` for the retrieved passages, and two parameters of
every detector: ``action`` (``report``, ``redact``, ``block``) and ``on_error`` (``block``, ``allow``). The gateway
reads these parameters and does not send them to the detector.
"""

import msgspec

from gateway.dialects.json_fields import Fields
from gateway.domain import Action, Detector, Detectors

_DEFAULT_ACTIONS = {"input": Action.BLOCK, "context": Action.REDACT, "output": Action.REPORT}
_ACTIONS = ("report", "redact", "block")
_PLATFORM_PARAMS = ("action", "on_error")


def parse(block: Fields) -> Detectors:
    """Parse the detectors of a block.

    Raises:
        InvalidRequest: A direction, an action or a parameter is invalid.
    """
    members = dict(block.members())
    if not members:
        return Detectors()
    for name in members:
        if name not in _DEFAULT_ACTIONS:
            raise block.invalid(name, f"is not a direction; the directions are {', '.join(_DEFAULT_ACTIONS)}")
    return Detectors(*(_direction(block, name) for name in _DEFAULT_ACTIONS))


def _direction(block: Fields, direction: str) -> tuple[Detector, ...]:
    detectors = []
    requested = block.object(direction)
    for detector_id in requested.names():
        # A detector runs even if its parameters are null.
        params = requested.object(detector_id)
        action = params.one_of("action", _ACTIONS)
        on_error = params.one_of("on_error", ("block", "allow"))
        own_params = {name: value for name, value in params.members() if name not in _PLATFORM_PARAMS}
        detectors.append(
            Detector(
                detector_id,
                Action[action.upper()] if action else _DEFAULT_ACTIONS[direction],
                allow_on_error=on_error == "allow",
                params_json=msgspec.json.encode(own_params),
                requested=True,
            )
        )
    return tuple(detectors)

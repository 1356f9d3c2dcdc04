"""The deployment's detectors, from a YAML file: what every request goes through, whatever it asks for."""

from pathlib import Path
from typing import Literal

import msgspec
import yaml
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable

from gateway.domain import Action, Detector, Detectors


class _Detector(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    action: Literal["report", "redact", "block"]
    on_error: Literal["block", "allow"] = "block"
    params: dict[str, object] = {}


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    input: list[_Detector] = []
    context: list[_Detector] = []
    output: list[_Detector] = []


def load(path: Path) -> Reloadable[Detectors]:
    """The file's detectors, read again when it changes.

    Raises:
        InvalidRequest: The file cannot be read, or is wrong.
    """
    try:
        return Reloadable(path, parse)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"The policy file {path} cannot be used: {error}") from None


def parse(raw: bytes) -> Detectors:
    """The detectors of a policy file.

    Raises:
        ValueError: The file is not YAML, or an unknown key or a wrong value stands in it; the message names it.
    """
    try:
        policy = msgspec.convert(yaml.safe_load(raw) or {}, _Policy)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    return Detectors(*(tuple(map(_detector, side)) for side in (policy.input, policy.context, policy.output)))


def _detector(entry: _Detector) -> Detector:
    return Detector(
        entry.id, Action[entry.action.upper()], entry.on_error == "allow", msgspec.json.encode(entry.params)
    )

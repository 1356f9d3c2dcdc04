"""Loads the deployment's detectors, which judge every request, from a YAML file."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, setting_errors

from gateway.domain import Action, Detector, Detectors, Policy


class DetectorEntry(BaseModel):
    """A detector in the format of the files."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1)
    action: Literal["report", "redact", "block"]
    on_error: Literal["block", "allow"] = "block"
    params: dict[str, Any] = {}

    def detector(self) -> Detector:
        """Return the detector."""
        action = Action[self.action.upper()]
        return Detector(self.id, action, self.on_error == "allow", msgspec.json.encode(self.params))


class DetectorLists(BaseModel):
    """Detectors by direction, in the format of the files."""

    model_config = ConfigDict(extra="forbid")

    input: list[DetectorEntry] = []
    context: list[DetectorEntry] = []
    output: list[DetectorEntry] = []

    def detectors(self) -> Detectors:
        """Return the detectors."""
        return Detectors(
            *(tuple(entry.detector() for entry in entries) for entries in (self.input, self.context, self.output))
        )


class PolicyEntry(DetectorLists):
    """A policy in the format of the files."""

    blocked_message: str = ""

    def policy(self) -> Policy:
        """Return the policy."""
        return Policy(self.detectors(), self.blocked_message)


def load(path: Path) -> Reloadable[Detectors]:
    """Load the file's detectors; reload them when the file changes.

    Raises:
        InvalidRequest: The file cannot be read or is invalid.
    """
    with setting_errors("policy_file"):
        return Reloadable(path, lambda raw: parse(raw, str(path)))


def parse(raw: bytes, name: str = "policy") -> Detectors:
    """Parse the detectors of a policy file.

    Args:
        raw: The content of the file.
        name: The name of the file in messages.

    Raises:
        BadFile: The file is not YAML, or has an unknown key or an invalid value; the message has the position.
    """
    return Document(raw, name).validated(DetectorLists).detectors()

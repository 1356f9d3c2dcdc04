"""The deployment's detectors, from a YAML file: what every request goes through, whatever it asks for."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, of_setting

from gateway.domain import Action, Detector, Detectors, Policy


class DetectorEntry(BaseModel):
    """A detector, as files name it."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1)
    action: Literal["report", "redact", "block"]
    on_error: Literal["block", "allow"] = "block"
    params: dict[str, Any] = {}

    def detector(self) -> Detector:
        """It, as the pipeline knows it."""
        action = Action[self.action.upper()]
        return Detector(self.id, action, self.on_error == "allow", msgspec.json.encode(self.params))


class DetectorLists(BaseModel):
    """Detectors by direction, as files name them."""

    model_config = ConfigDict(extra="forbid")

    input: list[DetectorEntry] = []
    context: list[DetectorEntry] = []
    output: list[DetectorEntry] = []

    def detectors(self) -> Detectors:
        """All of them, as the pipeline knows them."""
        return Detectors(
            *(tuple(entry.detector() for entry in side) for side in (self.input, self.context, self.output))
        )


class PolicyEntry(DetectorLists):
    """A policy, as files name it."""

    blocked_message: str = ""

    def policy(self) -> Policy:
        """It, as the pipeline knows it."""
        return Policy(self.detectors(), self.blocked_message)


def load(path: Path) -> Reloadable[Detectors]:
    """The file's detectors, read again when it changes.

    Raises:
        InvalidRequest: The file cannot be read, or is wrong.
    """
    with of_setting("policy_file"):
        return Reloadable(path, lambda raw: parse(raw, str(path)))


def parse(raw: bytes, name: str = "policy") -> Detectors:
    """The detectors of a policy file.

    Args:
        raw: Its content.
        name: What messages call it.

    Raises:
        BadFile: The file is not YAML, or an unknown key or a wrong value stands in it; the message has its place.
    """
    return Document(raw, name).validated(DetectorLists).detectors()

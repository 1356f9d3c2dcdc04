"""Front end profiles: what a chat front end gets where its requests leave things open, and what they may choose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.domain import Detectors


@dataclass(frozen=True, slots=True)
class Frontend:
    """One front end.

    Attributes:
        name: As metrics and logs call it.
        dialect: What is spoken on its mount, and on the bare paths where its host tells it; empty: the default.
        default_index: Searched where a request names no index; empty: nothing is searched then.
        model: Asked where a request names none; empty: the generator's default.
        system_prompt: Stands instead of the platform's own, where set.
        overrides: What ``context.overrides`` holds where a request says nothing.
        detectors: What every request goes through; requests can only add to them.
        blocked_message: Stands for an answer that the detectors stopped.
        indexes: Those that a request may choose; None: any.
        models: Those that a request may choose; None: any.
        prompt_template: A request may bring its own system prompt.
        client: A client whose habits the answers follow (``azure-js-component``); empty: as the protocol has it.
    """

    name: str = "default"
    dialect: str = ""
    default_index: str = ""
    model: str = ""
    system_prompt: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    detectors: Detectors = field(default_factory=Detectors)
    blocked_message: str = "The answer was withheld because it contains something that may not be shown."
    indexes: frozenset[str] | None = None
    models: frozenset[str] | None = None
    prompt_template: bool = True
    client: str = ""

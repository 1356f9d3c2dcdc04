"""Assistants: clients name them in place of a model. Each has its own indexes, prompt, detectors and audience."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from servicekit.principal import Principal

from gateway.domain import Detectors
from gateway.frontends.detector_policy import DetectorLists
from gateway.frontends.retrieval_block import index_name

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$"

_OWN_KEYS = {"index": "indexes", "model": "model", "prompt_template": "system_prompt", "detectors": "detectors"}
_Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Audience:
    """The callers that may use an assistant: the members of any list, or all callers if every list is empty."""

    tenants: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    def admits(self, principal: Principal) -> bool:
        """Return whether the audience includes a caller."""
        if self == Audience():
            return True
        return (
            principal.tenant in self.tenants
            or principal.user in self.users
            or not self.groups.isdisjoint(principal.groups)
            or not self.roles.isdisjoint(principal.roles)
        )


@dataclass(frozen=True, slots=True)
class Assistant:
    """An assistant.

    Attributes:
        name: The name, which requests and answers contain as the name of the model.
        indexes: The indexes to search together; empty: no search.
        model: The model to use; empty: the profile's model.
        system_prompt: Replaces the profile's system prompt, if set.
        overrides: The default values of ``context.overrides``, with priority over the profile's.
        detectors: The detectors that run in addition to the profile's detectors.
        audience: The callers that may use the assistant.
    """

    name: str
    indexes: tuple[str, ...] = ()
    model: str = ""
    system_prompt: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    detectors: Detectors = field(default_factory=Detectors)
    audience: Audience = field(default_factory=Audience)


def _check_overrides(members: dict[str, Any]) -> dict[str, Any]:
    for name in members.keys() & _OWN_KEYS.keys():
        raise ValueError(f"{name} is not allowed here: use the assistant's key {_OWN_KEYS[name]}")
    return members


class AudienceEntry(BaseModel):
    """The audience of an assistant in the file's format."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tenants: list[_Name] = []
    users: list[_Name] = []
    groups: list[_Name] = []
    roles: list[_Name] = []

    def audience(self) -> Audience:
        """Return the audience."""
        return Audience(*map(frozenset, (self.tenants, self.users, self.groups, self.roles)))


class AssistantEntry(BaseModel):
    """An assistant in the file's format."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=NAME)]
    indexes: list[Annotated[str, AfterValidator(index_name)]] = []
    model: str = ""
    system_prompt: str | None = None
    overrides: Annotated[dict[str, Any], AfterValidator(_check_overrides)] = {}
    detectors: DetectorLists = DetectorLists()
    allow: AudienceEntry = AudienceEntry()

    def assistant(self) -> Assistant:
        """Return the assistant."""
        return Assistant(
            self.name,
            tuple(dict.fromkeys(self.indexes)),
            self.model,
            self.system_prompt,
            self.overrides,
            self.detectors.detectors(),
            self.allow.audience(),
        )


def assistants_by_name(entries: Iterable[AssistantEntry]) -> dict[str, Assistant]:
    """Return the assistants by name."""
    return {entry.name: entry.assistant() for entry in entries}

"""The ``mcp`` block of a front end's profile: what it offers to agents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gateway.frontends.retrieval_block import index_name

Tool = Literal["search", "fetch", "ask", "list_indexes"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
_PLACE = re.compile(r"\{([A-Za-z0-9_.-]{1,64})\}")


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """An argument of a prompt, which the user fills in."""

    name: str
    description: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """A prompt that clients show their users.

    Attributes:
        name: Its name, unique within the profile.
        text: The user's message; ``{name}`` is replaced by an argument.
    """

    name: str
    text: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the text with its arguments; a missing one is empty."""
        return _PLACE.sub(lambda place: values.get(place[1], ""), self.text)


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """What the profile offers to agents.

    Attributes:
        tools: Names of the tools.
        indexes: The only indexes that agents can search, the default one first; empty: those of the profile.
        prompts: The prompts, by name.
    """

    tools: frozenset[Tool] = frozenset(TOOLS)
    indexes: tuple[str, ...] = ()
    prompts: Mapping[str, AgentPrompt] = field(default_factory=dict)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PromptArgumentEntry(_Entry):
    """An argument of a prompt in the file's format."""

    name: Annotated[str, Field(pattern=_NAME)]
    description: str = ""
    required: bool = True


class PromptEntry(_Entry):
    """A prompt in the file's format."""

    name: Annotated[str, Field(pattern=_NAME)]
    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    title: str = ""
    description: str = ""
    arguments: list[PromptArgumentEntry] = []

    @model_validator(mode="after")
    def _known(self) -> "PromptEntry":
        names = [each.name for each in self.arguments]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two arguments are called '{name}'")
        for name in _PLACE.findall(self.text):
            if name not in names:
                raise ValueError(f"the text names the argument '{name}', which is not in arguments")
        return self

    def prompt(self) -> AgentPrompt:
        """Return the prompt."""
        arguments = tuple(PromptArgument(each.name, each.description, each.required) for each in self.arguments)
        return AgentPrompt(self.name, self.text, self.title, self.description, arguments)


class McpEntry(_Entry):
    """The block in the file's format; docs/mcp.md describes its keys."""

    tools: list[Tool] = list(TOOLS)
    indexes: list[Annotated[str, AfterValidator(index_name)]] = []
    prompts: list[PromptEntry] = []

    @model_validator(mode="after")
    def _once(self) -> "McpEntry":
        names = [each.name for each in self.prompts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two prompts are called '{name}'")
        return self

    def offer(self) -> AgentOffer:
        """Return the offer."""
        prompts = {each.name: each.prompt() for each in self.prompts}
        return AgentOffer(frozenset(self.tools), tuple(dict.fromkeys(self.indexes)), prompts)

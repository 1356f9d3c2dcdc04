"""The ``mcp`` block of a front end's profile: the tools, indexes and prompts for agents."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gateway.frontends.retrieval_block import index_name

Tool = Literal["search", "fetch", "ask", "list_indexes"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]{1,64})\}")


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
        name: The name, unique within the profile.
        text: The user's message. An argument's value replaces its placeholder ``{name}``.
    """

    name: str
    text: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with the values of the arguments; a missing value becomes an empty text."""
        return _PLACEHOLDER.sub(lambda placeholder: values.get(placeholder[1], ""), self.text)


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """The tools, indexes and prompts that a profile offers to agents.

    Attributes:
        tools: The names of the tools.
        indexes: The indexes that agents can search. A call that names no index searches all of them. Empty: the
            profile's indexes.
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
    def _check_arguments(self) -> "PromptEntry":
        names = [argument.name for argument in self.arguments]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two arguments have the name '{name}'")
        for name in _PLACEHOLDER.findall(self.text):
            if name not in names:
                raise ValueError(f"the text contains {{{name}}}, but arguments has no '{name}'")
        return self

    def prompt(self) -> AgentPrompt:
        """Return the prompt."""
        arguments = tuple(PromptArgument(entry.name, entry.description, entry.required) for entry in self.arguments)
        return AgentPrompt(self.name, self.text, self.title, self.description, arguments)


class McpEntry(_Entry):
    """The block in the file's format; docs/mcp.md describes its keys."""

    tools: list[Tool] = list(TOOLS)
    indexes: list[Annotated[str, AfterValidator(index_name)]] = []
    prompts: list[PromptEntry] = []

    @model_validator(mode="after")
    def _check_prompts(self) -> "McpEntry":
        names = [prompt.name for prompt in self.prompts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two prompts have the name '{name}'")
        return self

    def offer(self) -> AgentOffer:
        """Return the tools, indexes and prompts."""
        prompts = {entry.name: entry.prompt() for entry in self.prompts}
        return AgentOffer(frozenset(self.tools), tuple(dict.fromkeys(self.indexes)), prompts)

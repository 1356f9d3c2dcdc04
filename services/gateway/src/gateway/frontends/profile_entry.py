"""The format of a front end profile in the YAML file, and its conversion to a `Frontend`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gateway.domain import Policy
from gateway.frontends.assistants import AssistantEntry, assistants_by_name
from gateway.frontends.detector_policy import DetectorLists
from gateway.frontends.mcp_block import McpEntry
from gateway.frontends.profiles import ANY_ORIGIN, Audit, Frontend, GuardrailsWire
from gateway.frontends.response_policy import ResponsePolicy, UnknownTools
from gateway.frontends.retrieval_block import RetrievalEntry, index_name

SERVICE_POLICY = "service"
"""The name of the guardrails service's policy. A profile can use it like a policy of the file."""

DEFAULT = "default"
"""The name of the default profile."""

WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
# Members of `context.overrides` that have their own key in a profile.
_OWN_KEYS = {"index": "index", "model": "model", "prompt_template": "system_prompt", "detectors": "detectors"}


def _optional_index_name(name: str) -> str:
    return index_name(name) if name else name


def _host(text: str) -> str:
    if not _HOST.fullmatch(text.lower()):
        raise ValueError("a host is a name or an address, with or without a port: chat.example.com")
    return text.lower()


def _origin(text: str) -> str:
    scheme, slashes, host = text.lower().partition("://")
    if not slashes or scheme not in ("http", "https") or not _HOST.fullmatch(host):
        raise ValueError("an origin is a scheme and a host, without a path: https://chat.example.com")
    return text.lower()


def _origin_or_any(text: str) -> str:
    return text if text == ANY_ORIGIN else _origin(text)


def _check_overrides(members: dict[str, Any]) -> dict[str, Any]:
    for name in members.keys() & _OWN_KEYS.keys():
        raise ValueError(f"{name} is not allowed here: use the profile's key {_OWN_KEYS[name]}")
    return members


_Index = Annotated[str, AfterValidator(_optional_index_name)]
_Name = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AllowEntry(_Model):
    """The values that a profile allows requests to choose, in the file's format."""

    indexes: Literal["any"] | list[_Index] = []
    models: Literal["any"] | list[_Name] = []
    detectors: Literal["any", "none"] | list[_Name] = "any"
    prompt_template: bool = False
    chat_template: bool = False

    @property
    def allowed_detectors(self) -> frozenset[str] | None:
        """Return the detectors that a request may add; None: any."""
        if self.detectors == "any":
            return None
        return frozenset() if self.detectors == "none" else frozenset(self.detectors)


class ProfileEntry(_Model):
    """A profile in the file's format."""

    name: Annotated[str, Field(pattern=f"^{WORD}$")]
    mount: Annotated[str, Field(pattern=f"^{WORD}$")] = ""
    hosts: list[Annotated[str, AfterValidator(_host)]] = []
    origins: list[Annotated[str, AfterValidator(_origin)]] = []
    cors: list[Annotated[str, AfterValidator(_origin_or_any)]] = []
    dialect: str = ""
    client: Literal["", "azure-js-component"] = ""
    index: _Index | None = None
    model: str = ""
    system_prompt: str | None = None
    overrides: Annotated[dict[str, Any], AfterValidator(_check_overrides)] = {}
    policy: str = ""
    detectors: DetectorLists = DetectorLists()
    blocked_message: _Name | None = None
    allow: AllowEntry = AllowEntry()
    enforce_access: bool = False
    keys: list[_Name] = []
    retrieval: RetrievalEntry = RetrievalEntry()
    guardrails_wire: Literal["adr", "orchestrator"] = "adr"
    audit: Literal["off", "on", "required"] = "on"
    audit_text: bool = False
    priority: Literal["interactive", "batch"] = "interactive"
    responses: Literal["off", "requested", "default"] | None = None
    on_revoked: Literal["hide", "keep"] = "hide"
    searches: Annotated[int, Field(ge=0, le=20)] | None = None
    unknown_tools: Literal["drop", "refuse"] = "drop"
    citations: Literal["marks", "links"] = "marks"
    memory: Literal["session", "off"] | None = None
    assistants: list[AssistantEntry] = []
    mcp: McpEntry = McpEntry()

    def can_read(self, index: str, default_index: str) -> bool:
        """Return whether requests can read an index.

        Args:
            index: The index.
            default_index: The default index of profiles without the key ``index``.
        """
        own = default_index if self.index is None else self.index
        allowed = self.allow.indexes
        return allowed == "any" or index in (own, *self.retrieval.indexes, *allowed)

    def frontend(self, base: Frontend, policies: Mapping[str, Policy]) -> Frontend:
        """Return the profile.

        Args:
            base: The default values. Its assistants are added to the profile's assistants.
            policies: The policies by name.
        """
        policy = policies.get(self.policy, Policy())
        message = self.blocked_message or policy.blocked_message
        return Frontend(
            name=self.name,
            mount=self.mount,
            hosts=frozenset(self.hosts),
            origins=frozenset(self.origins),
            dialect=self.dialect,
            default_index=base.default_index if self.index is None else self.index,
            model=self.model,
            system_prompt=self.system_prompt,
            overrides=self.overrides,
            detectors=policy.detectors + self.detectors.detectors(),
            blocked_message=message or base.blocked_message,
            answers_blocked=bool(message),
            service_policy=self.policy == SERVICE_POLICY,
            indexes=None if self.allow.indexes == "any" else frozenset(self.allow.indexes),
            models=None if self.allow.models == "any" else frozenset(self.allow.models),
            allowed_detectors=self.allow.allowed_detectors,
            allows_prompt_template=self.allow.prompt_template,
            allows_chat_template=self.allow.chat_template,
            enforce_access=self.enforce_access,
            cors=frozenset(self.cors),
            client=self.client,
            keys=frozenset(self.keys),
            further_indexes=tuple(self.retrieval.indexes),
            tuning=self.retrieval.tuning(),
            rerank=self.retrieval.rerank,
            links_citations=self.citations == "links",
            memory=None if self.memory is None else self.memory == "session",
            assistants={**base.assistants, **assistants_by_name(self.assistants)},
            always_searches=bool(self.index) and self.name != DEFAULT,
            searches_with_tools=self.retrieval.with_tools,
            max_messages=base.max_messages,
            max_answer_tokens=base.max_answer_tokens,
            guardrails_wire=GuardrailsWire(self.guardrails_wire),
            audit=Audit(self.audit),
            audit_text=self.audit_text,
            hides_revoked=self.on_revoked == "hide",
            unknown_tools=UnknownTools(self.unknown_tools),
            responses=base.responses if self.responses is None else ResponsePolicy(self.responses),
            max_searches=base.max_searches if self.searches is None else self.searches,
            is_batch=self.priority == "batch",
            agents=self.mcp.offer(),
        )

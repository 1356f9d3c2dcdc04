"""Front end profiles: what a chat front end gets where its requests leave things open, and what they may choose."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servicekit.errors import InvalidRequest, PermissionDenied, Unavailable
from servicekit.principal import Principal

from gateway.domain import Detectors, Tuning
from gateway.frontends.assistants import Assistant
from gateway.frontends.mcp_block import AgentOffer
from gateway.frontends.response_policy import ResponsePolicy, UnknownTools

ANY_ORIGIN = "*"

UNJUDGED = frozenset(("chat_template", "prompt_embeds", "suffix"))
"""Members of a request that put words before a model which no detector judges."""


class Audit(enum.Enum):
    """Whether what detectors find is recorded."""

    OFF = "off"
    ON = "on"
    REQUIRED = "required"  # requests are refused while records get nowhere


class GuardrailsWire(enum.Enum):
    """Whose ways the guardrails orchestrator's routes have where they differ: the ADR's, or the reference's."""

    ADR = "adr"
    ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class Frontend:
    """One front end.

    Requests only narrow what a profile says: a dialect asks the methods here for whatever its requests may choose.

    Attributes:
        name: As metrics and logs call it.
        mount: First segment of the paths that are its own; empty: it has none.
        hosts: Hosts that belong to it, with a port or for all ports.
        origins: Origins of the pages that belong to it.
        dialect: What is spoken on its mount, and on the bare paths where its host tells it; empty: the default.
        default_index: Searched where a request names no index; empty: nothing is searched then.
        model: Asked where a request names none; empty: the generator's default.
        system_prompt: Stands instead of the platform's own, where set.
        overrides: What ``context.overrides`` holds where a request says nothing.
        detectors: What every request goes through; requests can only add to them.
        blocked_message: Stands for an answer that the detectors stopped.
        answers_blocked: It answers a question that the detectors stopped, too; else such a question is refused.
        indexes: Those that a request may choose besides the default one; None: any.
        models: Those that a request may choose besides its own one; None: any.
        own_detectors: Detectors that a request may bring besides those of the profile; None: any.
        prompt_template: A request may bring its own system prompt.
        chat_template: Where a policy applies, a request may still say what no detector judges: ``chat_template``,
            ``prompt_embeds``, ``suffix``.
        enforce_access: Access lists bind administrators, too.
        cors: Origins of other pages that may call it, ``*`` for all.
        client: A client whose habits the answers follow (``azure-js-component``); empty: as the protocol has it.
        keys: Names of the API keys that are bound to it, and so are good for nothing else.
        indexes_beside: Searched together with the default one, where a request names none.
        tuning: How a search weighs what it finds.
        rerank: A reranker orders what every search finds, where there is one.
        links_citations: Where a client shows text alone, citations are Markdown links that need no credential.
        memory: What was said in a session is remembered; None: as clients of the dialect expect it.
        assistants: Those that its requests may name like a model.
        assistant: The one that it represents (`serving`); empty: none.
        always_searches: Its entry names an index: every chat of an OpenAI-like route is answered from it, with the
            prompt and the overrides of the profile. Else such a request must name an index itself.
        searches_with_tools: Also a chat that brings tools.
        max_messages: Most messages of a request; None: any number.
        max_answer_tokens: Longest answer that a request may ask for; None: any.
        service_policy: The policy of the guardrails service holds, too.
        unguarded: Why requests cannot be guarded as they should be; all are refused then. Empty: they can.
        guardrails_wire: Whose ways the guardrails orchestrator's routes have.
        audit: Whether what detectors find is recorded.
        audit_text: The record holds the text that was found.
        unknown_tools: What becomes of tools of the Responses API that are not offered here.
        responses: Which responses of the Responses API are stored.
        hides_revoked: A stored response does not exist for a reader who may no longer see a document of it.
        searches: Most searches of a model in one response; 0: the platform searches first.
        batch: Its requests come from programs, and are refused before those that people wait for.
        agents: What agents are offered over the Model Context Protocol.
    """

    name: str = "default"
    mount: str = ""
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    dialect: str = ""
    default_index: str = ""
    model: str = ""
    system_prompt: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    detectors: Detectors = field(default_factory=Detectors)
    blocked_message: str = "The answer was withheld because it contains something that may not be shown."
    answers_blocked: bool = False
    indexes: frozenset[str] | None = None
    models: frozenset[str] | None = None
    own_detectors: frozenset[str] | None = None
    prompt_template: bool = True
    chat_template: bool = False
    enforce_access: bool = False
    cors: frozenset[str] = frozenset()
    client: str = ""
    keys: frozenset[str] = frozenset()
    indexes_beside: tuple[str, ...] = ()
    tuning: Tuning = field(default_factory=Tuning)
    rerank: bool = False
    links_citations: bool = False
    memory: bool | None = None
    assistants: Mapping[str, Assistant] = field(default_factory=dict)
    assistant: str = ""
    always_searches: bool = False
    searches_with_tools: bool = True
    max_messages: int | None = None
    max_answer_tokens: int | None = None
    service_policy: bool = False
    unguarded: str = ""
    guardrails_wire: GuardrailsWire = GuardrailsWire.ADR
    audit: Audit = Audit.ON
    audit_text: bool = False
    unknown_tools: UnknownTools = UnknownTools.DROP
    hides_revoked: bool = True
    responses: ResponsePolicy = ResponsePolicy.DEFAULT
    searches: int = 5
    batch: bool = False
    agents: AgentOffer = field(default_factory=AgentOffer)

    def serving(self, model: str, principal: Principal) -> "Frontend":
        """The profile as a request finds it that names this model: narrowed to an assistant where it is one's name.

        An assistant that the caller may not use does not exist for the caller.
        """
        chosen = self.assistants.get(model)
        if chosen is None or self.assistant or not chosen.audience.admits(principal):
            return self
        first, *others = chosen.indexes or ("",)
        return replace(
            self,
            assistant=model,
            default_index=first,
            indexes_beside=tuple(others),
            indexes=frozenset(),
            model=chosen.model or self.model,
            models=frozenset(),
            system_prompt=self.system_prompt if chosen.system_prompt is None else chosen.system_prompt,
            overrides={**self.overrides, **chosen.overrides},
            detectors=self.detectors + chosen.detectors,
            always_searches=True,
        )

    def assistants_for(self, principal: Principal) -> list[Assistant]:
        """The assistants that a caller may use."""
        return [each for each in self.assistants.values() if each.audience.admits(principal)]

    def index_for(self, asked: str, field: str) -> str:
        """The index that a request searches: the one that it asks for, else the profile's own; may be empty.

        Args:
            asked: What the request says; empty where it says nothing.
            field: Path of the request's field, for the message.

        Raises:
            PermissionDenied: The profile does not let requests choose this one.
        """
        return _chosen(asked, self.default_index, self.indexes, "index", field)

    def indexes_for(self, asked: Sequence[str], field: str) -> tuple[str, ...]:
        """The indexes that a request searches together: those that it asks for, else all of the profile's.

        Raises:
            PermissionDenied: The profile does not let requests choose one of them.
        """
        own = (self.default_index, *self.indexes_beside)
        if not asked:
            return tuple(name for name in dict.fromkeys(own) if name)
        return tuple(name if name in own else self.index_for(name, field) for name in dict.fromkeys(asked))

    @property
    def only_default_model(self) -> bool:
        """Whether no model is named that requests may ask for: they go to the generator's default one, and may name
        that, which the generator alone knows.
        """
        return not self.model and self.models is not None and not self.models

    def model_for(self, asked: str, field: str) -> str:
        """The model that a request goes to, likewise; see `only_default_model`."""
        asked = "" if asked == self.assistant else asked
        return asked if self.only_default_model else _chosen(asked, self.model, self.models, "model", field)

    def offers_model(self, name: str, default: str) -> bool:
        """Whether a request may ask for it by its name; the generator's default one has the other."""
        if self.only_default_model:
            return name == default
        return self.models is None or name == self.model or name in self.models

    def check_prompt_template(self, field: str) -> None:
        """To be asked before a request's own system prompt is used.

        Raises:
            PermissionDenied: The profile does not take one.
        """
        if not self.prompt_template:
            raise PermissionDenied(
                f"{field}: this front end does not take a prompt of the request's own.", field=field
            )

    def check_unjudged(self, asked: Iterable[str]) -> None:
        """To be asked of the names of a request's members.

        Raises:
            PermissionDenied: A policy applies, and one of them puts words before the model that no detector judges.
        """
        if self.chat_template or self.detectors == Detectors():
            return
        for name in asked:
            if name in UNJUDGED:
                raise PermissionDenied(
                    f"{name}: this front end does not take it, because no detector can judge it.", field=name
                )

    def check_messages(self, count: int, field: str) -> None:
        """To be asked of a request's messages.

        Raises:
            InvalidRequest: They are too many.
        """
        if self.max_messages is not None and count > self.max_messages:
            raise InvalidRequest(f"{field}: a request may have {self.max_messages} messages.", field=field)

    def check_answer_tokens(self, asked: int | None, field: str) -> None:
        """To be asked of the longest answer that a request wants.

        Raises:
            InvalidRequest: It is too long.
        """
        if self.max_answer_tokens is not None and asked is not None and asked > self.max_answer_tokens:
            raise InvalidRequest(f"{field}: an answer may have {self.max_answer_tokens} tokens.", field=field)

    def detectors_for(self, asked: Detectors, field: str = "detectors") -> Detectors:
        """What a request goes through: the profile's detectors, and those that it asks for.

        Args:
            asked: What the request says.
            field: Where it says it, for the message.

        Raises:
            PermissionDenied: The profile does not let requests bring one of them.
            Unavailable: The profile's are not known.
        """
        if self.own_detectors is not None:
            for each in (*asked.input, *asked.context, *asked.output):
                if each.detector_id not in self.own_detectors:
                    name = each.detector_id[:200]
                    raise PermissionDenied(f"{field}: requests may not bring the detector {name!r}.", field=field)
        if self.unguarded:
            raise Unavailable(self.unguarded)
        return self.detectors + asked.as_requested()

    def principal_for(self, principal: Principal, *, filter_asked: bool) -> Principal:
        """On whose behalf documents are looked up. Access lists always bind; administrators are free of them unless
        the profile enforces them or the request asks for them. A request cannot ask to be free of them.
        """
        if not (self.enforce_access or filter_asked) or not principal.sees_everything:
            return principal
        return replace(principal, roles=tuple(role for role in principal.roles if role != "admin"))

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of this origin may call it from a browser."""
        return origin in self.origins or origin in self.cors or ANY_ORIGIN in self.cors


class Frontends:
    """All profiles, as they are at one time; a request takes them once and keeps them for its life.

    Args:
        default: Holds where no other does.
        others: The others; no two share a mount, a host or an origin.

    Attributes:
        default: As given.
    """

    def __init__(self, default: Frontend, others: Iterable[Frontend] = ()) -> None:
        self.default = default
        everyone = (default, *others)
        self._names = {each.name: each for each in everyone}
        self._mounts = {each.mount: each for each in everyone if each.mount}
        self._hosts = {host: each for each in everyone for host in each.hosts}
        self._origins = {origin: each for each in everyone for origin in each.origins}
        self._bound: dict[str, frozenset[str]] = {}
        for each in everyone:
            for key in each.keys:
                self._bound[key] = self.bound_to(key) | {each.name}

    def bound_to(self, key: str) -> frozenset[str]:
        """Names of the profiles that an API key of this name is bound to; empty: it is bound to none."""
        return self._bound.get(key, frozenset())

    def named(self, name: str) -> Frontend | None:
        """The profile of this name, if it is there."""
        return self._names.get(name)

    def names_host(self, host: str) -> bool:
        """Return whether a profile names a host, given in lower case and with or without a port."""
        return host in self._hosts or _without_port(host) in self._hosts

    def resolve(self, path: str, host: str = "", origin: str = "") -> tuple[Frontend, str]:
        """The profile that a request belongs to, by its mount, else its host, else its origin; and its path below.

        Args:
            path: Path of the request, beginning with a slash.
            host: The ``Host`` header, in lower case.
            origin: The ``Origin`` header.
        """
        if self._mounts:
            segment, slash, rest = path[1:].partition("/")
            mounted = self._mounts.get(segment)
            if mounted is not None:
                return mounted, slash + rest or "/"
        found = None
        if self._hosts and host:
            found = self._hosts.get(host) or self._hosts.get(_without_port(host))
        if found is None and self._origins and origin:
            found = self._origins.get(origin)
        return found or self.default, path


FrontendsNow = Callable[[], Frontends]
"""Gives the profiles as they are now."""


def _chosen(asked: str, own: str, allowed: frozenset[str] | None, what: str, field: str) -> str:
    if not asked or asked == own:
        return own
    if allowed is not None and asked not in allowed:
        raise PermissionDenied(f"{field}: this front end does not offer the {what} {asked[:200]!r}.", field=field)
    return asked


def _without_port(host: str) -> str:
    # An IPv6 address stands in brackets; its colons are no port.
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host

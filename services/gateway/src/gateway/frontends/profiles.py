"""Front end profiles: the defaults of a chat front end, and what its requests may choose."""

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
"""Members of a request that give text to the model which no detector judges."""


class Audit(enum.Enum):
    """Whether findings of detectors are recorded."""

    OFF = "off"
    ON = "on"
    REQUIRED = "required"  # requests are refused while records cannot be stored


class GuardrailsWire(enum.Enum):
    """The variant of the guardrails orchestrator's routes: the ADR's, or the reference implementation's."""

    ADR = "adr"
    ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class Frontend:
    """One front end.

    Requests can only narrow a profile: a dialect calls the methods of this class for everything that requests may
    choose.

    Attributes:
        name: Its name in metrics and logs.
        mount: The first segment of its own paths; empty: it has none.
        hosts: Its hosts, with a port or for all ports.
        origins: The origins of its pages.
        dialect: The dialect on its mount, and on bare paths at its host; empty: the default.
        default_index: Searched if a request names no index; empty: no search.
        model: Used if a request names none; empty: the generator's default.
        system_prompt: Replaces the platform's system prompt, if set.
        overrides: Default values of ``context.overrides``.
        detectors: Judge every request; requests can only add to them.
        blocked_message: Replaces a blocked answer.
        answers_blocked: Answer a blocked question with the message; else refuse it.
        indexes: The indexes that a request may choose besides the default one; None: any.
        models: The models that a request may choose besides the profile's own; None: any.
        own_detectors: The detectors that a request may add; None: any.
        prompt_template: A request may have its own system prompt.
        chat_template: A request may use the members of `UNJUDGED`, even under a policy.
        enforce_access: Access lists also bind administrators.
        cors: Other origins whose pages may call it, ``*`` for all.
        client: A client whose conventions the answers follow (``azure-js-component``); empty: none.
        keys: Names of the API keys that are valid only for front ends that list them.
        indexes_beside: Searched with the default index, if a request names none.
        tuning: Options of searches.
        rerank: A reranker orders the results of every search, if there is a reranker.
        links_citations: For clients that show only text, citations are Markdown links that need no credential.
        memory: Store the sessions; None: as clients of the dialect expect it.
        assistants: The assistants that requests may name like a model.
        assistant: The assistant that this profile represents (`serving`); empty: none.
        always_searches: Every chat of an OpenAI-like route searches; else such a request must name an index.
        searches_with_tools: Also search for a chat that has tools.
        max_messages: The maximum number of messages of a request; None: no limit.
        max_answer_tokens: The highest limit of an answer that a request may set; None: any.
        service_policy: Also apply the policy of the guardrails service.
        unguarded: Why the policy cannot be applied; all requests are refused then. Empty: it can.
        guardrails_wire: The variant of the guardrails orchestrator's routes.
        audit: Whether findings of detectors are recorded.
        audit_text: The record contains the text that was found.
        unknown_tools: How to treat tools of the Responses API that the platform does not offer.
        responses: Which responses of the Responses API are stored.
        hides_revoked: A stored response does not exist for a reader who may no longer see one of its documents.
        searches: The maximum number of searches of a model in one response; 0: the platform searches first.
        batch: Its requests are batch work; under load they are refused before interactive ones.
        agents: What it offers to agents over the Model Context Protocol.
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
        """Return the profile for a request that names this model; an assistant's name narrows it to the assistant.

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
        """Return the assistants that a caller may use."""
        return [each for each in self.assistants.values() if each.audience.admits(principal)]

    def index_for(self, requested: str, field: str) -> str:
        """Return the index that a request searches: the requested one, else the profile's; may be empty.

        Args:
            requested: The requested index; may be empty.
            field: Path of the request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow the index.
        """
        return _chosen(requested, self.default_index, self.indexes, "index", field)

    def indexes_for(self, requested: Sequence[str], field: str) -> tuple[str, ...]:
        """Return the indexes that a request searches together: the requested ones, else the profile's.

        Raises:
            PermissionDenied: The profile does not allow one of them.
        """
        own = (self.default_index, *self.indexes_beside)
        if not requested:
            return tuple(name for name in dict.fromkeys(own) if name)
        return tuple(name if name in own else self.index_for(name, field) for name in dict.fromkeys(requested))

    @property
    def only_default_model(self) -> bool:
        """Return whether requests may use only the default model, whose name only the generator knows."""
        return not self.model and self.models is not None and not self.models

    def model_for(self, requested: str, field: str) -> str:
        """Return the model of a request: the requested one, else the profile's; see `only_default_model`."""
        requested = "" if requested == self.assistant else requested
        return requested if self.only_default_model else _chosen(requested, self.model, self.models, "model", field)

    def offers_model(self, name: str, default: str) -> bool:
        """Return whether a request may name this model; ``default`` is the generator's default model."""
        if self.only_default_model:
            return name == default
        return self.models is None or name == self.model or name in self.models

    def check_prompt_template(self, field: str) -> None:
        """Check that a request may use its own system prompt.

        Raises:
            PermissionDenied: The profile does not allow it.
        """
        if not self.prompt_template:
            raise PermissionDenied(f"{field}: this front end does not accept a request's own prompt.", field=field)

    def check_unjudged(self, requested: Iterable[str]) -> None:
        """Check the names of a request's members.

        Raises:
            PermissionDenied: A policy applies, and a member gives text to the model that no detector judges.
        """
        if self.chat_template or self.detectors == Detectors():
            return
        for name in requested:
            if name in UNJUDGED:
                raise PermissionDenied(
                    f"{name}: this front end does not accept it, because no detector can judge it.", field=name
                )

    def check_messages(self, count: int, field: str) -> None:
        """Check the number of a request's messages.

        Raises:
            InvalidRequest: There are too many.
        """
        if self.max_messages is not None and count > self.max_messages:
            raise InvalidRequest(f"{field}: a request may have at most {self.max_messages} messages.", field=field)

    def check_answer_tokens(self, requested: int | None, field: str) -> None:
        """Check a request's limit of the answer.

        Raises:
            InvalidRequest: It is too high.
        """
        if self.max_answer_tokens is not None and requested is not None and requested > self.max_answer_tokens:
            raise InvalidRequest(
                f"{field}: an answer may have at most {self.max_answer_tokens} tokens.", field=field
            )

    def detectors_for(self, requested: Detectors, field: str = "detectors") -> Detectors:
        """Return the detectors of a request: the profile's, and those that the request adds.

        Args:
            requested: The request's detectors.
            field: The request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow one of them.
            Unavailable: The profile's detectors are not known.
        """
        if self.own_detectors is not None:
            for each in (*requested.input, *requested.context, *requested.output):
                if each.detector_id not in self.own_detectors:
                    name = each.detector_id[:200]
                    raise PermissionDenied(f"{field}: requests may not add the detector {name!r}.", field=field)
        if self.unguarded:
            raise Unavailable(self.unguarded)
        return self.detectors + requested

    def principal_for(self, principal: Principal, *, filter_requested: bool) -> Principal:
        """Return the principal for looking up documents.

        Access lists bind all callers but administrators. They bind administrators, too, if the profile enforces
        them or the request asks for them. A request cannot remove them.
        """
        if not (self.enforce_access or filter_requested) or not principal.sees_everything:
            return principal
        return replace(principal, roles=tuple(role for role in principal.roles if role != "admin"))

    def allows_origin(self, origin: str) -> bool:
        """Return whether a page of this origin may call it from a browser."""
        return origin in self.origins or origin in self.cors or ANY_ORIGIN in self.cors


class Frontends:
    """A snapshot of all profiles; a request keeps its snapshot until it ends.

    Args:
        default: The profile of requests that match no other.
        others: The other profiles; no two share a mount, a host or an origin.

    Attributes:
        default: The default profile.
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
        """Return the names of the profiles that an API key is bound to; empty if it is bound to none."""
        return self._bound.get(key, frozenset())

    def named(self, name: str) -> Frontend | None:
        """Return the profile of this name; None if it does not exist."""
        return self._names.get(name)

    def names_host(self, host: str) -> bool:
        """Return whether a profile names a host, given in lower case and with or without a port."""
        return host in self._hosts or _without_port(host) in self._hosts

    def resolve(self, path: str, host: str = "", origin: str = "") -> tuple[Frontend, str]:
        """Return the profile of a request by mount, host or origin, in this order; and the path below the mount.

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
"""Returns the current snapshot."""


def _chosen(requested: str, own: str, allowed: frozenset[str] | None, what: str, field: str) -> str:
    if not requested or requested == own:
        return own
    if allowed is not None and requested not in allowed:
        message = f"{field}: this front end does not offer the {what} {requested[:200]!r}."
        raise PermissionDenied(message, field=field)
    return requested


def _without_port(host: str) -> str:
    # An IPv6 address is in brackets; its colons do not start a port.
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host

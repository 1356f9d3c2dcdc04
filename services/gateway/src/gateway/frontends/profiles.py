"""The type of front end profiles: the defaults of a front end, and the options that its requests may choose."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servicekit.errors import InvalidRequest, PermissionDenied, Unavailable
from servicekit.principal import Principal

from gateway.domain import Detectors, Tuning
from gateway.frontends.assistants import Assistant
from gateway.frontends.mcp_block import AgentOffer
from gateway.frontends.response_policy import ResponsePolicy, UnknownTools

ANY_ORIGIN = "*"
BLOCKED_MESSAGE = "The answer was withheld because it contains something that may not be shown."
"""The default of the text that replaces a blocked answer."""

UNJUDGED = frozenset(("chat_template", "prompt_embeds", "suffix"))
"""Members of a request whose text reaches the model without a detector's check."""


class Audit(enum.Enum):
    """Whether the gateway records findings of detectors."""

    OFF = "off"
    ON = "on"
    REQUIRED = "required"  # the gateway refuses requests while it cannot store records


class GuardrailsWire(enum.Enum):
    """The wire format of the guardrails orchestrator's routes: the ADR's, or the reference implementation's."""

    ADR = "adr"
    ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class Frontend:
    """The profile of one front end.

    A request can choose only within the limits of its profile. A dialect calls the methods of this class to
    validate the choices of a request.

    Attributes:
        name: The name in metrics and logs.
        mount: The first segment of the front end's paths; empty: no own paths.
        hosts: The front end's hosts. A host without a port includes all ports.
        origins: The origins of the front end's pages.
        dialect: The dialect below the mount, and at the hosts without a mount; empty: the default dialect.
        default_index: The index for requests that name none; empty: no search.
        model: The model for requests that name none; empty: the generator's default model.
        system_prompt: Replaces the platform's system prompt, if set.
        overrides: The default values of ``context.overrides``.
        detectors: The detectors that judge every request. A request can add detectors.
        blocked_message: The text that replaces a blocked answer.
        answers_blocked: Whether the gateway answers a blocked question with the message. Otherwise it refuses the
            question.
        indexes: The indexes that a request may choose besides the default index; None: any.
        models: The models that a request may choose besides the profile's model; None: any.
        allowed_detectors: The detectors that a request may add; None: any.
        allows_prompt_template: Whether a request may set the system prompt.
        allows_chat_template: Whether a request may use the members of `UNJUDGED` although detectors apply.
        enforce_access: Whether access lists also apply to administrators.
        cors: Further origins whose pages may call the front end; ``*``: all.
        client: The client whose conventions the answers follow (``azure-js-component``); empty: none.
        keys: The names of API keys that are valid only for the front ends that list them.
        further_indexes: The indexes that are searched with the default index if a request names none.
        tuning: The options of searches.
        rerank: Whether a reranker orders the results of every search, if the retriever has a reranker.
        links_citations: Whether citations become Markdown links that open without a credential, for clients that
            show only text.
        memory: Whether the gateway stores sessions; None: the dialect's default.
        assistants: The assistants that requests may name in place of a model.
        assistant: The name of the assistant that the request uses, as `with_assistant` sets it; empty: none.
        always_searches: Whether every chat of an OpenAI-like route searches. Otherwise only requests that name an
            index search.
        searches_with_tools: Whether a chat whose request contains tools searches, too.
        max_messages: The maximum number of messages of a request; None: no limit.
        max_answer_tokens: The maximum number of answer tokens that a request may set; None: no limit.
        service_policy: Whether the policy of the guardrails service applies, too.
        policy_error: Why the policy cannot be applied, so that the gateway refuses all requests; empty: no error.
        guardrails_wire: The wire format of the guardrails orchestrator's routes.
        audit: Whether the gateway records findings of detectors.
        audit_text: Whether a record contains the text of a finding.
        unknown_tools: How to treat tools of the Responses API that the platform does not offer.
        responses: Which responses of the Responses API are stored.
        hides_revoked: Whether a stored response is hidden from readers who lost access to one of its documents.
        max_searches: The maximum number of searches by a model in one response; 0: the platform searches before the
            model runs.
        is_batch: Whether the requests are batch work. Under load the gateway refuses batch work first.
        agents: The tools, indexes and prompts for agents (Model Context Protocol).
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
    blocked_message: str = BLOCKED_MESSAGE
    answers_blocked: bool = False
    indexes: frozenset[str] | None = None
    models: frozenset[str] | None = None
    allowed_detectors: frozenset[str] | None = None
    allows_prompt_template: bool = True
    allows_chat_template: bool = False
    enforce_access: bool = False
    cors: frozenset[str] = frozenset()
    client: str = ""
    keys: frozenset[str] = frozenset()
    further_indexes: tuple[str, ...] = ()
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
    policy_error: str = ""
    guardrails_wire: GuardrailsWire = GuardrailsWire.ADR
    audit: Audit = Audit.ON
    audit_text: bool = False
    unknown_tools: UnknownTools = UnknownTools.DROP
    hides_revoked: bool = True
    responses: ResponsePolicy = ResponsePolicy.DEFAULT
    max_searches: int = 5
    is_batch: bool = False
    agents: AgentOffer = field(default_factory=AgentOffer)

    def with_assistant(self, model: str, principal: Principal) -> "Frontend":
        """Return the profile for a request that names this model, which may be an assistant's name.

        The name of an assistant that the caller must not use has no effect: it counts as the name of a model.
        """
        chosen = self.assistants.get(model)
        if chosen is None or self.assistant or not chosen.audience.admits(principal):
            return self
        first, *further = chosen.indexes or ("",)
        return replace(
            self,
            assistant=model,
            default_index=first,
            further_indexes=tuple(further),
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
        return [assistant for assistant in self.assistants.values() if assistant.audience.admits(principal)]

    def index_for(self, requested: str, field: str) -> str:
        """Return the index that a request searches: the requested index, or else the profile's; may be empty.

        Args:
            requested: The requested index; may be empty.
            field: The path of the request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow the index.
        """
        return _choose(requested, self.default_index, self.indexes, "index", field)

    def indexes_for(self, requested: Sequence[str], field: str) -> tuple[str, ...]:
        """Return the indexes that a request searches together: the requested indexes, or else the profile's.

        Args:
            requested: The requested indexes; may be empty.
            field: The path of the request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow an index.
        """
        own = (self.default_index, *self.further_indexes)
        if not requested:
            return tuple(name for name in dict.fromkeys(own) if name)
        return tuple(name if name in own else self.index_for(name, field) for name in dict.fromkeys(requested))

    @property
    def only_default_model(self) -> bool:
        """Return whether requests may use only the generator's default model."""
        return not self.model and self.models is not None and not self.models

    def model_for(self, requested: str, field: str) -> str:
        """Return the model of a request: the requested model, or else the profile's.

        If `only_default_model` is true, this method does not check the name. The pipeline compares it with the
        generator's default model.

        Args:
            requested: The requested model; may be empty.
            field: The path of the request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow the model.
        """
        requested = "" if requested == self.assistant else requested
        return requested if self.only_default_model else _choose(requested, self.model, self.models, "model", field)

    def offers_model(self, name: str, default: str) -> bool:
        """Return whether a request may name this model. ``default`` is the generator's default model."""
        if self.only_default_model:
            return name == default
        return self.models is None or name == self.model or name in self.models

    def check_prompt_template(self, field: str) -> None:
        """Check that a request may set the system prompt.

        Raises:
            PermissionDenied: The profile does not allow it.
        """
        if not self.allows_prompt_template:
            raise PermissionDenied(
                f"{field}: requests to this front end may not set the system prompt. Remove the field.", field=field
            )

    def check_unjudged(self, requested: Iterable[str]) -> None:
        """Check that a request has no member of `UNJUDGED`, if the profile forbids them.

        Raises:
            PermissionDenied: Detectors apply, and the request has a member that no detector can judge.
        """
        if self.allows_chat_template or self.detectors == Detectors():
            return
        for name in requested:
            if name in UNJUDGED:
                raise PermissionDenied(
                    f"{name}: this front end refuses the field, because no detector can judge it.",
                    field=name,
                )

    def check_messages(self, count: int, field: str) -> None:
        """Check the number of a request's messages.

        Raises:
            InvalidRequest: The request has too many messages.
        """
        if self.max_messages is not None and count > self.max_messages:
            raise InvalidRequest(f"{field}: a request may have at most {self.max_messages} messages.", field=field)

    def check_answer_tokens(self, requested: int | None, field: str) -> None:
        """Check the limit of tokens that a request sets for the answer.

        Raises:
            InvalidRequest: The limit is too high.
        """
        if self.max_answer_tokens is not None and requested is not None and requested > self.max_answer_tokens:
            raise InvalidRequest(
                f"{field}: an answer may have at most {self.max_answer_tokens} tokens.", field=field
            )

    def detectors_for(self, requested: Detectors, field: str = "detectors") -> Detectors:
        """Return the detectors of a request: the profile's detectors, followed by the request's detectors.

        Args:
            requested: The request's detectors.
            field: The request's field, for the message.

        Raises:
            PermissionDenied: The profile does not allow a detector of the request.
            Unavailable: The profile's policy is not available.
        """
        if self.allowed_detectors is not None:
            for detector in (*requested.input, *requested.context, *requested.output):
                if detector.detector_id not in self.allowed_detectors:
                    name = detector.detector_id[:200]
                    raise PermissionDenied(f"{field}: requests may not add the detector {name!r}.", field=field)
        if self.policy_error:
            raise Unavailable(self.policy_error)
        return self.detectors + requested

    def principal_for(self, principal: Principal, *, filter_requested: bool) -> Principal:
        """Return the principal for looking up documents.

        Access lists apply to all callers except administrators. They also apply to administrators if the profile or
        the request demands it.

        Args:
            principal: The caller.
            filter_requested: Whether the request demands access lists for administrators, too.
        """
        if not (self.enforce_access or filter_requested) or not principal.sees_everything:
            return principal
        return replace(principal, roles=tuple(role for role in principal.roles if role != "admin"))

    def allows_origin(self, origin: str) -> bool:
        """Return whether a web page of this origin may call the front end."""
        return origin in self.origins or origin in self.cors or ANY_ORIGIN in self.cors


def _choose(requested: str, own: str, allowed: frozenset[str] | None, kind: str, field: str) -> str:
    if not requested or requested == own:
        return own
    if allowed is not None and requested not in allowed:
        message = f"{field}: this front end does not offer the {kind} {requested[:200]!r}."
        raise PermissionDenied(message, field=field)
    return requested

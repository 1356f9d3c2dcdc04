"""The context of an agent's request: the caller, the profile, the deadline and the log members."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from gateway.answering.timeline import Timeline
from gateway.dialects import turn_settings
from gateway.dialects.json_fields import Fields
from gateway.domain import Detectors, Done, Passage, PromptOptions, Turn
from gateway.domain.text_documents import Equals
from gateway.frontends.profiles import Frontend

SCOPE_KEY = "causeway.mcp"
"""The member of a request's ASGI scope that contains its `AgentRequest`."""
MAX_PASSAGES = 50
"""The maximum number of passages of one call."""
DEFAULT_PASSAGES = 10
"""The number of passages if neither the call nor the profile sets it."""


@dataclass(slots=True)
class AgentRequest:
    """One request of an agent.

    Attributes:
        frontend: The profile, narrowed to the indexes of agents.
        principal: The caller, whose access rights apply to documents.
        deadline: When the request must end.
        timeline: Records the steps.
        base_url: The address of the front end, without a trailing slash. The addresses of documents begin with it.
        headers: The headers that detectors may receive, with names in lower case.
        log: The members to add to the request's log line.
        sources: The passages that the tool ``search`` returned, or None without a search.
        done: The last event of a complete answer.
    """

    frontend: Frontend
    principal: Principal
    deadline: Deadline
    timeline: Timeline
    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    log: dict[str, str | int] = field(default_factory=dict)
    sources: tuple[Passage, ...] | None = None
    done: Done | None = None

    def indexes(self, requested: str, field: str = "index") -> tuple[str, ...]:
        """Return the indexes of a call: the named index, or else the default indexes of the profile.

        Raises:
            InvalidRequest: The call names no index, and the profile has no default index.
            PermissionDenied: The profile does not offer the index.
        """
        chosen = self.frontend.indexes_for((requested,) if requested else (), field)
        if not chosen:
            raise InvalidRequest(
                f"{field} is missing: this front end has no default index. Name an index.", field=field
            )
        self.log["index"] = ",".join(chosen)
        return chosen

    def offers(self, index: str) -> bool:
        """Return whether a call may name an index."""
        defaults = (self.frontend.default_index, *self.frontend.further_indexes)
        return index in defaults or self.frontend.indexes is None or index in self.frontend.indexes

    def turn(self, question: str, indexes: tuple[str, ...], metadata: tuple[Equals, ...] = ()) -> Turn:
        """Return the turn for a search, or for reading a document, with the profile's options."""
        frontend = self.frontend
        settings = Fields(dict(frontend.overrides), "overrides")
        retrieval = turn_settings.retrieval(settings, frontend, indexes, MAX_PASSAGES)
        return Turn(
            principal=self.principal,
            question=question,
            retrieval=replace(retrieval, metadata=metadata),
            detectors=frontend.detectors_for(Detectors()),
            blocked_message=frontend.blocked_message,
            answers_blocked=True,
            headers=self.headers,
        )

    def question_turn(self, question: str, indexes: tuple[str, ...], language: str) -> Turn:
        """Return the turn for a question to the model, with the profile's options."""
        frontend = self.frontend
        settings = Fields(dict(frontend.overrides), "overrides")
        chosen_language: dict[str, Any] = {"language": language or turn_settings.language(settings)}
        turn = self.turn(question, indexes)
        return replace(
            turn,
            model=frontend.model_for("", "model"),
            only_default_model=frontend.only_default_model,
            retrieval=replace(turn.retrieval, top=turn.retrieval.top or DEFAULT_PASSAGES),
            parameters_json=msgspec.json.encode(turn_settings.parameters(settings)),
            max_tokens=settings.integer("max_tokens", 1, turn_settings.MAX_ANSWER_TOKENS),
            prompting=PromptOptions(
                system_prompt=frontend.system_prompt,
                language=turn_settings.language(Fields(chosen_language)),
            ),
        )


def agent_profile(frontend: Frontend) -> Frontend:
    """Return the profile for agents, narrowed to the indexes of its ``mcp`` block."""
    if not frontend.agents.indexes:
        return frontend
    first, *others = frontend.agents.indexes
    return replace(frontend, default_index=first, further_indexes=tuple(others), indexes=frozenset())

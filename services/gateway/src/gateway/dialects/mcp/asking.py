"""What is known of a request when a tool is called: who asks, and what the profile says."""

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
"""Member of a request's ASGI scope that holds its `Asking`."""
MOST_PASSAGES = 50
USUAL_PASSAGES = 10


@dataclass(slots=True)
class Asking:
    """One request of an agent.

    Attributes:
        frontend: The profile, narrowed to what agents reach.
        principal: On whose behalf documents are looked up.
        deadline: When it must be over.
        timeline: Notes what happens on the way.
        base_url: Address of the front end, without a slash at its end; the addresses of documents begin with it.
        headers: Those that detectors may get, in lower case.
        log: Members of the request's line in the log.
        sources: The passages that a search returned.
        done: The last event of an answer that is complete.
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

    def indexes(self, asked: str, field: str = "index") -> tuple[str, ...]:
        """The indexes that a call reads: the one that it names, else the profile's own.

        Raises:
            InvalidRequest: It names none, and the profile has none.
            PermissionDenied: The profile does not offer the index.
        """
        chosen = self.frontend.indexes_for((asked,) if asked else (), field)
        if not chosen:
            raise InvalidRequest(f"{field}: there is no usual index here; name one.", field=field)
        self.log["index"] = ",".join(chosen)
        return chosen

    def offers(self, index: str) -> bool:
        """Return whether a call may name an index."""
        own = (self.frontend.default_index, *self.frontend.indexes_beside)
        return index in own or self.frontend.indexes is None or index in self.frontend.indexes

    def turn(self, question: str, indexes: tuple[str, ...], metadata: tuple[Equals, ...] = ()) -> Turn:
        """What is asked, as the profile has it."""
        frontend = self.frontend
        settings = Fields(dict(frontend.overrides), "overrides")
        retrieval = turn_settings.retrieval(settings, frontend, indexes, MOST_PASSAGES)
        return Turn(
            principal=self.principal,
            question=question,
            retrieval=replace(retrieval, metadata=metadata),
            detectors=frontend.detectors_for(Detectors()),
            blocked_message=frontend.blocked_message,
            answers_blocked=True,
            headers=self.headers,
        )

    def question(self, question: str, indexes: tuple[str, ...], language: str) -> Turn:
        """What a model is asked, as the profile has it."""
        frontend = self.frontend
        settings = Fields(dict(frontend.overrides), "overrides")
        said: dict[str, Any] = {"language": language or turn_settings.language(settings)}
        turn = self.turn(question, indexes)
        return replace(
            turn,
            model=frontend.model_for("", "model"),
            only_default_model=frontend.only_default_model,
            retrieval=replace(turn.retrieval, top=turn.retrieval.top or USUAL_PASSAGES),
            parameters_json=msgspec.json.encode(turn_settings.parameters(settings)),
            max_tokens=settings.integer("max_tokens", 1, turn_settings.LONGEST_ANSWER),
            prompting=PromptOptions(
                system_prompt=frontend.system_prompt,
                language=turn_settings.language(Fields(said)),
            ),
        )


def for_agents(frontend: Frontend) -> Frontend:
    """Return a profile as agents find it: narrowed to their indexes where it names some."""
    if not frontend.agents.indexes:
        return frontend
    first, *others = frontend.agents.indexes
    return replace(frontend, default_index=first, indexes_beside=tuple(others), indexes=frozenset())

"""The chat routes of every dialect, and the requests to them."""

from dataclasses import dataclass
from typing import Any

from gateway.dialects.rag_chat.registration import Stages


@dataclass(frozen=True)
class Route:
    """A route, and the members that each request to it has."""

    path: str
    stream: bool
    members: tuple[tuple[str, Any], ...] = ()

    @property
    def is_orchestrator(self) -> bool:
        """Return whether this is a route of the guardrails orchestrator."""
        return self.path.startswith("/api/v2/")

    @property
    def has_prompt(self) -> bool:
        """Return whether requests have a prompt instead of messages, and answers a text instead of a message."""
        return self.path.startswith("/api/v2/text/") or self.path == "/v1/completions"

    @property
    def is_responses(self) -> bool:
        """Return whether this is a route of the Responses API."""
        return self.path.startswith("/v1/responses")

    @property
    def has_openai_format(self) -> bool:
        """Return whether answers have OpenAI's format, and a request names its detectors at the top of its body."""
        return self.is_orchestrator or self.path.startswith(("/v1/", "/openai/"))

    def with_detectors(self, detectors: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a body that name detectors."""
        return (
            {"detectors": detectors}
            if self.has_openai_format
            else {"context": {"overrides": {"detectors": detectors}}}
        )

    def body(self, messages: list[dict[str, str]], members: dict[str, Any]) -> dict[str, Any]:
        """Return a request body with these messages and further members."""
        if self.is_responses:
            return {
                "input": [item for each in messages for item in items_of(each)],
                **dict(self.members),
                **members,
            }
        text = self.path.startswith(("/api/v2/text/", "/v1/completions"))
        content = {"prompt": messages[-1]["content"]} if text else {"messages": messages}
        return {**content, **dict(self.members), **members}


def items_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message of a chat as items of a Responses request."""
    calls = message.get("tool_calls", ())
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    content = message["content"]
    if isinstance(content, list):
        content = [{"type": "input_text", "text": part["text"]} for part in content]
    texts = [{"role": message["role"], "content": content}] if content else []
    return [*texts, *({"type": "function_call", "call_id": each["id"], **each["function"]} for each in calls)]


def routes() -> list[Route]:
    """Return the chat routes whose answers have a text, both unary and streamed.

    The list has OpenAI's routes and the orchestrator's chat route twice: without and with an index in the request.
    """
    found = [
        Route(path, stream, (("stream", stream), *index))
        for path in (
            "/v1/chat/completions",
            "/v1/completions",
            "/openai/deployments/m/chat/completions",
            "/v1/responses",
        )
        for stream in (False, True)
        for index in ((), (("index_name", "docs"),))
    ]
    found += [
        Route(f"/api/v2/{path}/completions-detection", stream, (("model", "m"), ("stream", stream), *index))
        for stream in (False, True)
        for path, index in (("chat", ()), ("chat", (("index_name", "docs"),)), ("text", ()))
    ]
    for path in Stages().single_stage_paths():
        if path.endswith("/stream"):
            found.append(Route(path, stream=True))
        elif path.startswith(("/2024-01/", "/2024-01-28/")):
            found += [Route(path, stream, (("stream", stream),)) for stream in (False, True)]
        else:
            found.append(Route(path, stream=False))
    return found


def all_routes() -> list[Route]:
    """Return all routes, including those whose answers have a special form."""
    return [*routes(), GENERATION, COMPACTION]


def name_of(parameter: Route | str) -> str:
    """Return the id of a test's parameter."""
    if isinstance(parameter, str):
        return parameter
    return f"{parameter.path} {'stream' if parameter.stream else 'unary'} {dict(parameter.members)}"


# The answers of this route are unary and have no choices. Each request names a detector of generations.
GENERATION = Route(
    "/api/v2/text/generation-detection", stream=False, members=(("model_id", "m"), ("detectors", {"relevance": {}}))
)

# The answers of this route contain no readable text of the model.
COMPACTION = Route("/v1/responses/compact", stream=False, members=(("model", "m"),))

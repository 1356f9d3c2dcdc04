"""Use the `openai` package as its users do, and print the results as JSON."""

import json
import os
from typing import Any

from openai import NotFoundError, OpenAI
from pydantic import BaseModel

QUESTION: Any = [{"role": "user", "content": "When will the pivot bearing be renewed?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "Say when high water is.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]


class Tide(BaseModel):
    """The schema for `parse`."""

    place: str
    hour: int


def main() -> None:
    """Chat, stream, use tools, parse, embed, list models, and cause an error."""
    client = OpenAI(base_url=os.environ["CAUSEWAY_URL"] + "/v1", api_key=os.environ["CAUSEWAY_KEY"], max_retries=0)
    chat = client.chat.completions
    results: dict[str, Any] = {}

    answer: Any = chat.create(model="extractive", messages=QUESTION, extra_body={"index_name": "handbook"})
    results["chat"] = answer.choices[0].message.content
    results["sources"] = [node["sourcepage"] for node in answer.source_nodes]
    results["tokens"] = answer.usage.total_tokens

    stream = chat.create(
        model="extractive",
        messages=QUESTION,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"index_name": "handbook"},
    )
    chunks = list(stream)
    results["stream"] = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    results["stream_tokens"] = chunks[-1].usage.total_tokens if chunks[-1].usage else None

    conversation: Any = [{"role": "user", "content": "When is high water at Kelsay?"}]
    choice = chat.create(model="scripted", messages=conversation, tools=TOOLS).choices[0]
    [call] = choice.message.tool_calls or []
    assert call.type == "function"
    results["tool"] = [choice.finish_reason, call.function.name, json.loads(call.function.arguments)]
    conversation += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "six"}]
    results["after_tool"] = (
        chat.create(model="scripted", messages=conversation, tools=TOOLS).choices[0].message.content
    )
    with chat.stream(model="scripted", messages=conversation[:1], tools=TOOLS) as streamed:
        streamed.until_done()
        [call] = streamed.get_final_completion().choices[0].message.tool_calls or []
    results["streamed_tool"] = [call.function.name, json.loads(call.function.arguments)]

    parsed = chat.parse(model="scripted", messages=conversation[:1], response_format=Tide).choices[0].message.parsed
    results["parsed"] = parsed.model_dump() if parsed else None

    harbour = OpenAI(base_url=os.environ["CAUSEWAY_URL"] + "/harbour/v1", api_key=os.environ["CAUSEWAY_KEY"])
    assistant_answer: Any = harbour.chat.completions.create(model="harbour-master", messages=QUESTION)
    results["assistant"] = [assistant_answer.model, assistant_answer.choices[0].message.content]
    results["assistants"] = [each.id for each in harbour.models.list()]

    models = [each.id for each in client.models.list()]
    results["models"] = models
    vectors = client.embeddings.create(model="all-minilm-l6-v2", input=["tide", "high water"]).data
    results["vectors"] = [len(each.embedding) for each in vectors]
    try:
        chat.create(model="no-such-model", messages=QUESTION)
    except NotFoundError as error:
        results["error"] = [error.status_code, error.request_id is not None]
    print(json.dumps(results))


main()

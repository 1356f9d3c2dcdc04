"""Use the Responses API of the `openai` package as its users do, and print the results as JSON."""

import json
import os
from typing import Any

from openai import NotFoundError, OpenAI
from pydantic import BaseModel

QUESTION = "When will the pivot bearing be renewed?"
SEARCH: Any = [{"type": "file_search", "vector_store_ids": ["handbook"]}]
TIDE: Any = {
    "type": "function",
    "name": "tide",
    "description": "Say when high water is.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
}


class Tide(BaseModel):
    """The schema for `parse`."""

    place: str
    hour: int


def main() -> None:
    """Search, stream, use a tool over two turns, parse, continue a conversation, read and delete."""
    client = OpenAI(base_url=os.environ["CAUSEWAY_URL"] + "/v1", api_key=os.environ["CAUSEWAY_KEY"], max_retries=0)
    responses = client.responses
    results: dict[str, Any] = {}

    answer = responses.create(model="extractive", input=QUESTION, tools=SEARCH)
    results["text"] = answer.output_text
    results["kinds"] = [item.type for item in answer.output]
    message: Any = answer.output[-1]
    results["cited"] = sorted({each.filename for each in message.content[0].annotations})

    with responses.stream(model="extractive", input=QUESTION, tools=SEARCH) as stream:
        results["deltas"] = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        results["streamed"] = stream.get_final_response().output_text

    first = responses.create(model="scripted", input="When is high water at Kelsay?", tools=[TIDE])
    call: Any = first.output[0]
    results["tool"] = [call.name, json.loads(call.arguments)]
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "six"}]
    after = responses.create(model="scripted", input=result, previous_response_id=first.id, tools=[TIDE])
    results["after_tool"] = after.output_text
    parsed: Any = responses.parse(model="scripted", input="When?", text_format=Tide).output_parsed
    results["parsed"] = parsed.model_dump()

    conversation = client.conversations.create(metadata={"topic": "tides"})
    for question in ("One?", "Two?"):
        responses.create(model="scripted", input=question, conversation=conversation.id)
    items: Any = client.conversations.items.list(conversation.id, order="asc")
    results["conversation"] = [item.role for item in items]
    client.conversations.delete(conversation.id)

    results["read"] = responses.retrieve(after.id).output_text
    results["input_items"] = [item.type for item in responses.input_items.list(after.id)]
    results["tokens"] = responses.input_tokens.count(model="scripted", input="When is high water?").input_tokens > 0
    responses.delete(after.id)
    try:
        responses.retrieve(after.id)
    except NotFoundError as error:
        results["error"] = [error.status_code, bool(error.request_id)]
    print(json.dumps(results))


if __name__ == "__main__":
    main()

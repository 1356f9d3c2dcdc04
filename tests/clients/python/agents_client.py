"""Use the `openai-agents` package as its users do, and print the results as JSON."""

import asyncio
import json
import os
from typing import Any

from agents import (  # type: ignore[import-not-found]  # in the clients' own environment
    Agent,
    FileSearchTool,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI


@function_tool  # type: ignore[untyped-decorator]  # as above
def tide(place: str) -> str:
    """Say when high water is.

    Args:
        place: The name of a harbour.
    """
    return f"six at {place}"


async def main() -> None:
    """Use a tool, a second turn, file search, and a hand-off to another agent."""
    client = AsyncOpenAI(
        base_url=os.environ["CAUSEWAY_URL"] + "/v1", api_key=os.environ["CAUSEWAY_KEY"], max_retries=0
    )
    set_default_openai_client(client, use_for_tracing=False)
    set_tracing_disabled(True)
    found: dict[str, Any] = {}

    clerk = Agent(name="Clerk", instructions="Say when high water is.", model="scripted", tools=[tide])
    first = await Runner.run(clerk, "When is high water at Kelsay?")
    found["tool"] = first.final_output
    second: Any = [*first.to_input_list(), {"role": "user", "content": "And tomorrow?"}]
    found["second_turn"] = (await Runner.run(clerk, second)).final_output

    reader = Agent(
        name="Reader",
        instructions="Answer from the handbook.",
        model="extractive",
        tools=[FileSearchTool(vector_store_ids=["handbook"], max_num_results=3, include_search_results=True)],
    )
    read = await Runner.run(reader, "When will the pivot bearing be renewed?")
    found["search"] = read.final_output
    found["searched"] = [item.raw_item.type for item in read.new_items if item.type == "tool_call_item"]
    followed: Any = [*read.to_input_list(), {"role": "user", "content": "Who renews the pivot bearing?"}]
    found["searched_again"] = bool((await Runner.run(reader, followed)).final_output)

    desk = Agent(name="Desk", instructions="Hand over.", model="scripted", handoffs=[clerk])
    handed = await Runner.run(desk, "When is high water?")
    found["handed_to"] = [handed.last_agent.name, handed.final_output]
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())

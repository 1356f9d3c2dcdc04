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
    results: dict[str, Any] = {}

    clerk = Agent(name="Clerk", instructions="Say when high water is.", model="scripted", tools=[tide])
    first = await Runner.run(clerk, "When is high water at Kelsay?")
    results["tool"] = first.final_output
    second: Any = [*first.to_input_list(), {"role": "user", "content": "And tomorrow?"}]
    results["second_turn"] = (await Runner.run(clerk, second)).final_output

    reader = Agent(
        name="Reader",
        instructions="Answer from the handbook.",
        model="extractive",
        tools=[FileSearchTool(vector_store_ids=["handbook"], max_num_results=3, include_search_results=True)],
    )
    search = await Runner.run(reader, "When will the pivot bearing be renewed?")
    results["search"] = search.final_output
    results["searched"] = [item.raw_item.type for item in search.new_items if item.type == "tool_call_item"]
    follow_up: Any = [*search.to_input_list(), {"role": "user", "content": "Who renews the pivot bearing?"}]
    results["searched_again"] = bool((await Runner.run(reader, follow_up)).final_output)

    desk = Agent(name="Desk", instructions="Hand over.", model="scripted", handoffs=[clerk])
    hand_off = await Runner.run(desk, "When is high water?")
    results["handed_to"] = [hand_off.last_agent.name, hand_off.final_output]
    print(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main())

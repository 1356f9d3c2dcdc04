"""Run an agent of OpenAI's SDK with the tools of the platform, and print the results as JSON."""

import asyncio
import json
import os

from agents import (  # type: ignore[import-not-found]  # in the clients' own environment
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    set_tracing_disabled,
)
from agents.mcp import MCPServerStreamableHttp  # type: ignore[import-not-found]  # as above
from openai import AsyncOpenAI

QUESTION = "When will the pivot bearing be renewed?"


async def main() -> None:
    """Let the model call the search tool, read its result, and answer."""
    set_tracing_disabled(True)  # otherwise the SDK sends traces to another host
    key, url = os.environ["CAUSEWAY_KEY"], os.environ["CAUSEWAY_URL"]
    params = {"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}"}}
    model = OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0))
    async with MCPServerStreamableHttp(params=params, name="causeway") as server:
        listed = [tool.name for tool in await server.list_tools()]
        agent = Agent(name="clerk", instructions="Use the tools.", model=model, mcp_servers=[server])
        result = await Runner.run(agent, QUESTION)
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    print(
        json.dumps(
            {"tools": sorted(listed), "outputs": len(outputs), "said": str(outputs), "end": result.final_output}
        )
    )


asyncio.run(main())

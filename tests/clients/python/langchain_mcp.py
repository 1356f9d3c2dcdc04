"""Use LangChain's MCP client as its users do, and print the results as JSON."""

import asyncio
import json
import os
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient  # type: ignore[import-not-found]  # not installed here

QUESTION = "When will the pivot bearing be renewed?"


async def main() -> None:
    """List the tools, call them by name, and read a resource."""
    key = os.environ["CAUSEWAY_KEY"]
    client = MultiServerMCPClient(
        {
            "causeway": {
                "transport": "streamable_http",
                "url": os.environ["CAUSEWAY_URL"] + "/mcp",
                "headers": {"Authorization": f"Bearer {key}"},
            }
        }
    )
    tools = {tool.name: tool for tool in await client.get_tools()}
    found = _json(await tools["search"].ainvoke({"query": QUESTION, "index": "handbook", "top": 3}))
    read = _json(await tools["fetch"].ainvoke({"id": found["results"][0]["id"], "length": 100}))
    answer = _text(await tools["ask"].ainvoke({"question": QUESTION, "index": "handbook"}))
    indexes = _json(await tools["list_indexes"].ainvoke({}))
    results = {
        "tools": sorted(tools),
        "found": [each["title"] for each in found["results"]],
        "read": [read["title"], len(read["text"])],
        "answer": answer,
        "indexes": [each["name"] for each in indexes["indexes"]],
    }
    print(json.dumps(results))


def _text(content: Any) -> str:
    """Return the text of a tool's answer. Newer versions of the package return a list of content blocks."""
    return content if isinstance(content, str) else "\n".join(each["text"] for each in content)


def _json(content: Any) -> Any:
    return json.loads(_text(content))


asyncio.run(main())

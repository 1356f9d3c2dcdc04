"""Use LangChain's tools and structured answers as its users do, and print the results as JSON."""

import json
import os

from langchain_core.tools import tool  # type: ignore[import-not-found]  # in the clients' own environment
from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # in the clients' own environment
from pydantic import BaseModel

QUESTION = "When is high water at Kelsay?"


class Tide(BaseModel):
    """The schema of an answer."""

    place: str
    hour: int


@tool  # type: ignore[untyped-decorator]  # the type checker does not have its package
def tide(place: str) -> str:
    """Say when high water is."""
    return f"six at {place}"


def main() -> None:
    """Use a tool, and get an answer with the schema."""
    chat = ChatOpenAI(
        base_url=os.environ["CAUSEWAY_URL"] + "/v1",
        api_key=os.environ["CAUSEWAY_KEY"],
        model="scripted",
        max_retries=0,
    )
    message = chat.bind_tools([tide]).invoke(QUESTION)
    parsed = chat.with_structured_output(Tide, method="json_schema").invoke(QUESTION)
    calls = [[each["name"], each["args"]] for each in message.tool_calls]
    print(json.dumps({"tool": calls, "parsed": parsed.model_dump()}))


main()

"""The stored form of a request after detectors have changed it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from gateway.dialects.responses import record
from gateway.domain import Turn
from servicekit.principal import Principal

FIND = {"type": "function", "name": "find", "description": "For Ann.", "parameters": None, "strict": None}
SHOWN = {"tools": [{"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND]}]}


@pytest.mark.parametrize(
    ("name", "description", "stored"),
    [
        ("crm__find", "For [name].", ("crm", "find", "For [name].")),
        ("[name]__find", "For Ann.", ("withheld", "withheld", None)),
    ],
)
def test_tools_of_a_namespace(name: str, description: str, stored: tuple[Any, ...]) -> None:
    """Tools are stored as the model received them. A tool with a changed name and its namespace are withheld."""

    def parameters(name: str, description: str) -> bytes:
        function = {"name": name, "description": description}
        return json.dumps({"tools": [{"type": "function", "function": function}]}).encode()

    original = Turn(Principal("local"), "When?", parameters_json=parameters("crm__find", "For Ann."))
    judged = replace(original, parameters_json=parameters(name, description))
    [space] = record.redacted_members(SHOWN, original, judged)["tools"]
    [tool] = space["tools"]
    assert (space["name"], tool["name"], tool.get("description")) == stored


def test_verbosity_remains() -> None:
    """A changed schema replaces only the format of ``text``."""

    def parameters(title: str) -> bytes:
        schema = {"name": "person", "schema": {"title": title}}
        return json.dumps({"response_format": {"type": "json_schema", "json_schema": schema}}).encode()

    original = Turn(Principal("local"), "When?", parameters_json=parameters("Ann"))
    judged = replace(original, parameters_json=parameters("[name]"))
    shown = {"tools": [], "text": {"format": {"type": "json_schema", "name": "person"}, "verbosity": "low"}}
    text = record.redacted_members(shown, original, judged)["text"]
    assert text["verbosity"] == "low"
    assert text["format"] == {"type": "json_schema", "name": "person", "schema": {"title": "[name]"}}

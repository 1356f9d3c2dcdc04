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

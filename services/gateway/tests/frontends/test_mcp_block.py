"""The `mcp` block of a profile."""

import pytest
from gateway.frontends.mcp_block import TOOLS, AgentOffer, AgentPrompt
from gateway.frontends.profiles import Frontend
from gateway.frontends.profiles_file import GatewayProperties, parse
from servicekit.yaml_file import BadFile

BASE = Frontend(default_index="handbook")


def offer(block: str, more: str = "") -> AgentOffer:
    """Return the offer of a profile with this block."""
    raw = f"frontends:\n  - name: help\n    mount: help\n    {more}\n    mcp: {block}\n"
    [profile] = parse(raw.encode(), "f.yaml", BASE, GatewayProperties())
    return profile.agents


def test_an_empty_block_offers_all_tools() -> None:
    """An empty block offers all tools, and no prompts."""
    assert offer("{}") == AgentOffer(frozenset(TOOLS), (), {})


@pytest.mark.parametrize(
    ("index", "more"),
    [
        ("handbook", ""),
        ("own", "index: own"),
        ("further", "retrieval: {indexes: [further]}"),
        ("allowed", "allow: {indexes: [allowed]}"),
        ("anything", "allow: {indexes: any}"),
    ],
)
def test_indexes_of_the_profile_can_be_offered(index: str, more: str) -> None:
    """The block can list the default index, the further indexes and the allowed indexes."""
    assert offer(f"{{indexes: [{index}, {index}]}}", more).indexes == (index,)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{tools: [remove]}", r"frontends\[0\].mcp.tools\[0\]"),
        (
            "{indexes: [other]}",
            r"frontends\[0\].mcp.indexes\[0\]: requests of the profile may not read this index",
        ),
        ("{indexes: [../x]}", r"frontends\[0\].mcp.indexes\[0\]"),
        ("{prompts: [{name: a, text: x}, {name: a, text: y}]}", "two prompts have the name 'a'"),
        ("{prompts: [{name: a, text: 'On {b}'}]}", "the text contains {b}, but arguments has no 'b'"),
        ("{prompts: [{name: a, text: x, arguments: [{name: b}, {name: b}]}]}", "two arguments have the name 'b'"),
        ("{prompts: [{name: a b, text: x}]}", r"prompts\[0\].name"),
        ("{resources: []}", "mcp.resources"),
    ],
)
def test_an_invalid_block_is_refused(block: str, message: str) -> None:
    """The error names the key."""
    with pytest.raises(BadFile, match=message):
        offer(block)


def test_arguments_are_filled_in_once() -> None:
    """Placeholders inside an argument's value, and braces without a name, do not change."""
    prompt = AgentPrompt("a", "On {one} and {two}: {one} {not one}")
    assert prompt.fill({"one": "{two}", "two": "2"}) == "On {two} and 2: {two} {not one}"
    assert prompt.fill({}) == "On  and :  {not one}"

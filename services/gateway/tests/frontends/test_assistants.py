import re
from typing import Any

import pytest
from causeway_testing.servers import eventually
from gateway.dialects.rag_chat import overrides
from gateway.domain import Action, Detector, Model
from gateway.frontends.assistants import Assistant, Audience
from gateway.frontends.model_names import ModelNames
from gateway.frontends.profiles import Frontend
from gateway.frontends.profiles_file import GatewayProperties, parse
from servicekit.errors import Unavailable
from servicekit.principal import Principal
from servicekit.yaml_file import BadFile

SERVED = GatewayProperties(check_overrides=overrides.check, models=lambda: frozenset({"small"}))


def read(text: str) -> tuple[Frontend, ...]:
    return parse(text.encode(), "f.yaml", Frontend(default_index="base"), SERVED)


def test_every_key_of_an_assistant_is_read() -> None:
    """Every key is read. The deployment's assistants belong to every profile, including the default one."""
    help_, default = read(
        """
assistants:
  - name: harbour
    indexes: [docs, minutes, docs]
    model: small
    system_prompt: Be kind.
    overrides: {top: 1}
    detectors: {output: [{id: words, action: block}]}
    allow: {tenants: [t], users: [u], groups: [g], roles: [admin]}
frontends:
  - {name: help, mount: help, assistants: [{name: own}]}
"""
    )
    assert list(help_.assistants) == ["harbour", "own"]
    assert (default.name, default.default_index, list(default.assistants)) == ("default", "base", ["harbour"])
    harbour = help_.assistants["harbour"]
    assert (harbour.indexes, harbour.model, harbour.system_prompt) == (("docs", "minutes"), "small", "Be kind.")
    assert harbour.overrides == {"top": 1}
    assert harbour.detectors.output == (Detector("words", Action.BLOCK),)
    assert harbour.audience == Audience(*map(frozenset, (["t"], ["u"], ["g"], ["admin"])))
    assert help_.assistants["own"] == Assistant("own")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("assistants: [{name: small}]", "line 1, assistants[0].name: a model has the name 'small'"),
        ("assistants: [{name: a}, {name: a}]", "assistants[1].name: another assistant has the name 'a'"),
        (
            "assistants: [{name: a}]\nfrontends: [{name: f, mount: f, assistants: [{name: a}]}]",
            "line 2, frontends[0].assistants[0].name: another assistant has the name 'a'",
        ),
        ("assistants: [{name: a, overrides: {tpo: 1}}]", "overrides.tpo: This setting does not exist"),
        ("assistants: [{name: a, overrides: {index: b}}]", "use the assistant's key indexes"),
        ("assistants: [{name: a, indexes: [..]}]", "assistants[0].indexes[0]"),
        ("assistants: [{name: a, alow: {}}]", "assistants[0].alow"),
        ("assistants: [{name: 'a b'}]", "assistants[0].name"),
    ],
)
def test_invalid_assistants_are_refused(text: str, message: str) -> None:
    """The error names the position in the file. The name of a model is refused."""
    with pytest.raises(BadFile, match=re.escape(message)):
        read(text)


@pytest.mark.parametrize(
    ("audience", "admitted"),
    [
        (Audience(), True),
        (Audience(tenants=frozenset({"t"})), True),
        (Audience(users=frozenset({"u"})), True),
        (Audience(groups=frozenset({"x", "g"})), True),
        (Audience(roles=frozenset({"ask"})), True),
        (Audience(tenants=frozenset({"x"}), users=frozenset({"x"}), groups=frozenset({"x"})), False),
    ],
)
def test_the_audience_of_an_assistant(audience: Audience, admitted: bool) -> None:
    """An assistant is available to all callers, or to those in one of its lists."""
    assert audience.admits(Principal("t", "u", groups=("g",), roles=("ask",))) is admitted


async def test_names_of_models_are_loaded_in_the_background() -> None:
    """The gateway starts while the generator is unavailable, and reads the names later."""

    class UnavailableGenerator:
        available = False

        async def models(self, *_: Any) -> tuple[Model, ...]:
            if not self.available:
                raise Unavailable("down")
            return (Model("small", 1, "tests", 0, ready=True),)

    generator: Any = UnavailableGenerator()
    names = ModelNames(generator, interval=0.01)
    async with names:
        assert names() == frozenset()
        generator.available = True
        await eventually(lambda: names() == {"small"})
        generator.available = False
    assert names() == {"small"}

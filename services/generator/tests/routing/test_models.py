"""The models of a process."""

import pytest
from causeway_testing.generator import FakeModel, FakeTokenCounter, deployed
from generator.routing.attempts import Target
from generator.routing.models import Models
from generator.routing.route import Route
from servicekit.errors import NotFound


def route(name: str) -> Route:
    return Route(name, [Target(deployed(FakeModel()))], tokens=FakeTokenCounter())


def test_a_name_selects_its_model_and_an_empty_name_the_first() -> None:
    """A name selects its model, and an empty name the first model. The error contains an unknown name."""
    one, two = route("one"), route("two")
    models = Models([one, two])
    assert (models.get("two"), models.get("")) == (two, one)
    assert list(models) == [one, two]
    with pytest.raises(NotFound, match="'three'") as caught:
        models.get("three")
    assert (caught.value.field, caught.value.resource) == ("model", "three")


def test_two_models_of_one_name_are_refused() -> None:
    """Two models of one name are refused."""
    with pytest.raises(ValueError, match="same name"):
        Models([route("a"), route("a")])

"""The models of a process."""

import pytest
from generator.fakes import FakeModel
from generator.models import Models
from servicekit.errors import NotFound


def test_a_model_is_found_by_its_name_the_first_without_one() -> None:
    """An unknown one is named in the error."""
    one, two = FakeModel("one"), FakeModel("two")
    models = Models([one, two])
    assert (models.get("two"), models.get("")) == (two, one)
    assert list(models) == [one, two]
    with pytest.raises(NotFound, match="'three'") as caught:
        models.get("three")
    assert (caught.value.field, caught.value.resource) == ("model", "three")


def test_names_are_used_once() -> None:
    """Two models of one name would hide each other."""
    with pytest.raises(ValueError, match="same name"):
        Models([FakeModel("a"), FakeModel("a")])

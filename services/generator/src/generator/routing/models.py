"""The models of this process, by their public names."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from servicekit.errors import NotFound

from generator.routing.route import Route


class Models:
    """The models that a request can name.

    Args:
        models: At least one model, with different names; the first one is the default.

    Raises:
        ValueError: Two models have the same name.
    """

    def __init__(self, models: Sequence[Route]) -> None:
        self._default = models[0]
        self._by_name = {model.name: model for model in models}
        if len(self._by_name) != len(models):
            names = sorted(model.name for model in models)
            raise ValueError(f"two models have the same name: {', '.join(names)}")

    def __iter__(self) -> Iterator[Route]:
        """Iterate over the models, the default one first."""
        return iter(self._by_name.values())

    def get(self, name: str) -> Route:
        """Return the model with this name, or the default model for an empty name.

        Raises:
            NotFound: The model does not exist.
        """
        model = self._by_name.get(name) if name else self._default
        if model is None:
            message = f"The model '{name}' does not exist. GET /v1/models lists the models."
            raise NotFound(message, field="model", resource=name)
        return model


class Catalogue(Protocol):
    """The served models; they may change between two requests."""

    def lease(self) -> AbstractContextManager[Models]:
        """Provide the current models, and keep them usable during the block."""
        ...

"""The models of this process, by their public names."""

from collections.abc import Iterator, Sequence

from servicekit.errors import NotFound

from generator.ports import Model


class Models:
    """Models that can be asked for.

    Args:
        models: At least one, under different names; the first is the default.

    Raises:
        ValueError: Two have the same name.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._default = models[0]
        self._by_name = {model.name: model for model in models}
        if len(self._by_name) != len(models):
            names = sorted(model.name for model in models)
            raise ValueError(f"two models have the same name: {', '.join(names)}")

    def __iter__(self) -> Iterator[Model]:
        """The models, the default one first."""
        return iter(self._by_name.values())

    def get(self, name: str) -> Model:
        """The model of a name; the default one for an empty name.

        Raises:
            NotFound: There is none.
        """
        model = self._by_name.get(name) if name else self._default
        if model is None:
            raise NotFound(f"The model '{name}' does not exist.", field="model", resource=name)
        return model

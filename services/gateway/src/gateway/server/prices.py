"""Loads the prices of tokens from a YAML file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, setting_errors

_TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """The prices of a million tokens of prompts (``input``) and of answers (``output``)."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of models.

    Attributes:
        currency: The currency.
        models: The prices by the public names of the models.
    """

    currency: str = ""
    models: dict[str, Price] = field(default_factory=dict)

    def cost(self, model: str, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of an answer. None if the model has no price."""
        price = self.models.get(model)
        if price is None:
            return None
        return (input_tokens * price.input + output_tokens * price.output) / _TOKENS_PER_PRICE


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _PriceEntry(_Model):
    input: float = Field(ge=0)
    output: float = Field(ge=0)


class _File(_Model):
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    models: dict[str, _PriceEntry]


def load(path: Path) -> Reloadable[Prices]:
    """Load the prices, and reload them when the file changes.

    Raises:
        InvalidRequest: The file cannot be read, or is invalid. The message has the position.
    """
    with setting_errors("prices_file"):
        return Reloadable(path, lambda raw: _parse(raw, str(path)))


def _parse(raw: bytes, name: str) -> Prices:
    file = Document(raw, name).validated(_File)
    return Prices(file.currency, {model: Price(entry.input, entry.output) for model, entry in file.models.items()})

"""The ``retrieval`` block of a front end's profile: further indexes and search options."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from servicekit import keys
from servicekit.errors import InvalidRequest

from gateway.domain import Tuning

_Share = Annotated[float, Field(ge=0, le=1, strict=False)]


def index_name(name: str) -> str:
    """Check the name of an index for pydantic, and return it unchanged.

    Raises:
        ValueError: The name is not a valid index name.
    """
    try:
        return keys.index_name(name)
    except InvalidRequest:
        message = "an index name has 1 to 128 letters, digits, '_', '.' or '-' and begins with a letter or digit"
        raise ValueError(message) from None


class RetrievalEntry(BaseModel):
    """The block in the file's format; docs/retrieval.md describes its keys."""

    model_config = ConfigDict(extra="forbid", strict=True)

    indexes: list[Annotated[str, AfterValidator(index_name)]] = []
    fusion: Literal["scores", "ranks"] | None = None
    dense_weight: _Share | None = None
    expand: bool | None = None
    diversity: _Share = 0.0
    neighbours: Annotated[int, Field(ge=0, le=10)] = 0
    rerank: bool = False
    reranker: str = ""
    with_tools: bool = True

    def tuning(self) -> Tuning:
        """Return the search options."""
        return Tuning(
            fusion=self.fusion,
            dense_weight=self.dense_weight,
            expand=self.expand,
            diversity=self.diversity,
            neighbours=self.neighbours,
            reranker=self.reranker,
        )

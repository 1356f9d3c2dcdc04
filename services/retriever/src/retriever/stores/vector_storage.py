"""The storage options of dense vectors, the same for each kind of store."""

from dataclasses import dataclass
from typing import Literal

Quantization = Literal["none", "scalar", "binary"]

QUANTILE = 0.99
"""Share of the numbers that scalar quantization maps to 256 values. It clips the other numbers."""
_OVERSAMPLING: dict[Quantization, float] = {"scalar": 2.0, "binary": 4.0}
"""Candidates for each result. A search finds them by quantized vectors and rescores them by full vectors."""


@dataclass(frozen=True, slots=True)
class VectorStorage:
    """How an index stores its dense vectors. Only a rebuild changes it.

    Attributes:
        quantization: The vectors that searches compare. ``none``: full vectors. ``scalar``: one byte for each
            number. ``binary``: one bit for each number. Searches rescore the best candidates by the full vectors.
        on_disk: Whether full vectors are read from the disk when a search needs them, not when an index is opened.
    """

    quantization: Quantization = "none"
    on_disk: bool = False

    @property
    def oversampling(self) -> float | None:
        """The number of candidates that a search rescores for each result; None for full vectors."""
        return _OVERSAMPLING.get(self.quantization)

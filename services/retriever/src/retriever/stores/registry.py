"""The kinds of vector stores that the settings can choose."""

from collections.abc import Sequence
from typing import Any

from servicekit.errors import InvalidRequest

from retriever.stores.edge.kind import EDGE
from retriever.stores.kind import StoreKind, StoreSettings
from retriever.stores.qdrant.kind import QDRANT

STORES: Sequence[StoreKind[Any]] = (EDGE, QDRANT)
"""All kinds of stores. The first is the default."""


def chosen(settings: StoreSettings, kinds: Sequence[StoreKind[Any]] = STORES) -> StoreKind[Any]:
    """Return the kind of store that the settings choose, the first kind if they choose none.

    Raises:
        InvalidRequest: The settings choose several stores, or the chosen store does not support a setting.
    """
    found = [kind for kind in kinds if kind.is_chosen(settings)]
    if len(found) > 1:
        names = ", ".join(kind.name for kind in found)
        raise InvalidRequest(f"The settings choose several vector stores: {names}. Keep the settings of one.")
    kind = found[0] if found else kinds[0]
    if not kind.has_vector_storage:
        _refuse_vector_storage(kind.name, settings)
    return kind


def _refuse_vector_storage(store: str, settings: StoreSettings) -> None:
    for name in ("qdrant_quantization", "qdrant_on_disk"):
        value = getattr(settings, name)
        if value != type(settings).model_fields[name].default:
            raise InvalidRequest(
                f"The vector store '{store}' does not support CAUSEWAY_{name.upper()}={str(value).lower()}. "
                "Remove the setting, or choose another store."
            )

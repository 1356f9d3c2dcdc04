"""The kinds of vector stores that the retriever can be told to use."""

from collections.abc import Sequence
from typing import Any

from servicekit.errors import InvalidRequest

from retriever.stores.edge.kind import EDGE
from retriever.stores.kind import StoreKind, StoreSettings
from retriever.stores.qdrant.kind import QDRANT

STORES: Sequence[StoreKind[Any]] = (EDGE, QDRANT)
"""The first is used where the settings choose none."""


def chosen(settings: StoreSettings, kinds: Sequence[StoreKind[Any]] = STORES) -> StoreKind[Any]:
    """Return the kind of store that the settings choose, the first kind if they choose none.

    Raises:
        InvalidRequest: They choose several, or ask for something that the chosen store cannot do.
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
                f"The vector store '{store}' cannot do CAUSEWAY_{name.upper()}={str(value).lower()}. "
                "Remove the setting, or choose another store."
            )

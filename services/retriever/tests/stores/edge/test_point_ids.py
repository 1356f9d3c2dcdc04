"""Ids of points as text and as UUIDs."""

import uuid

from hypothesis import given
from hypothesis import strategies as st
from retriever.stores.edge import point_ids


@given(st.uuids())
def test_ids_are_converted_both_ways(id_: uuid.UUID) -> None:
    """An id keeps its text and equals the UUID of the standard library, even when it is cached."""
    for _ in range(2):
        assert point_ids.text(id_.int) == str(id_)
        assert point_ids.point_id(str(id_)) == id_

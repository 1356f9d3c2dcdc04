import pytest
from ingest.parsing.text.tables import row, rows


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        (["Name", "Built"], ["Petrel", "2009"], "Name: Petrel; Built: 2009"),
        (["Name", "", "x"], ["Petrel", "2009", ""], "Name: Petrel; 2009"),
        (["Name:"], ["Petrel", "more"], "Name: Petrel; more"),
        ([], ["Petrel", "", "2009"], "Petrel | 2009"),
        (["Name"], [""], ""),
    ],
)
def test_a_row_says_what_its_cells_are(header: list[str], cells: list[str], expected: str) -> None:
    """Each cell has the name of its column, if there is one. Empty cells are left out."""
    assert row(header, cells) == expected


def test_columns_without_anything_are_named_at_the_end() -> None:
    """Columns without content are named at the end, so no word of a table is lost."""
    assert list(rows(["a", "b", "c"], [["1", "", ""], ["2", "3", ""]])) == ["a: 1", "a: 2; b: 3", "c"]
    assert list(rows(["a", "b"], [])) == ["a | b"]
    assert list(rows([], [])) == []

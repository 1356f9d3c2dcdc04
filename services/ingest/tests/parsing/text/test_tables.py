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
def test_cells_have_column_names(header: list[str], cells: list[str], expected: str) -> None:
    """Each cell has the name of its column, if the column has one. Empty cells are left out."""
    assert row(header, cells) == expected


def test_names_of_empty_columns_follow_at_the_end() -> None:
    """The names of columns without content follow at the end, so that no word of a table is lost."""
    assert list(rows(["a", "b", "c"], [["1", "", ""], ["2", "3", ""]])) == ["a: 1", "a: 2; b: 3", "c"]
    assert list(rows(["a", "b"], [])) == ["a | b"]
    assert list(rows([], [])) == []

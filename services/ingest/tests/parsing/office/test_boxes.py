import pytest
from ingest.parsing.office.boxes import Box, reading_order


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([], []),
        ([Box(0, 5, 9, 6), Box(0, 0, 9, 1)], [1, 0]),
        # Three cards, each a heading above a text, below a title.
        (
            [
                Box(0, 0, 9, 1),
                *(Box(left, 2, left + 2, 3) for left in (0, 3, 6)),
                *(Box(left, 4, left + 2, 5) for left in (0, 3, 6)),
            ],
            [0, 1, 4, 2, 5, 3, 6],
        ),
        # One box above the other, but not in one column.
        ([Box(5, 0, 9, 1), Box(0, 2, 9, 3), Box(0, 4, 3, 5)], [0, 1, 2]),
        # Overlapping boxes are read from top to bottom.
        ([Box(0, 2, 5, 5), Box(1, 1, 6, 4)], [1, 0]),
    ],
)
def test_the_order_of_boxes(boxes: list[Box], expected: list[int]) -> None:
    """Columns are read one after the other. A box across several columns separates those above and below it."""
    assert reading_order(boxes) == expected

"""Tables as text: one line a row that can be understood, and found, without the rest of the table."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    """Each row as `row` gives it, last the names of columns without anything in them."""
    filled: set[int] = set()
    for cells in body:
        filled.update(column for column, cell in enumerate(cells) if cell)
        yield row(header, cells)
    names = unused(header, filled)
    if names:
        yield names


def unused(header: Sequence[str], filled: AbstractSet[int]) -> str:
    """The names of columns that no row has carried, given those that are filled; empty if there are none."""
    return row((), [name for column, name in enumerate(header) if column not in filled])


def row(header: Sequence[str], cells: Sequence[str]) -> str:
    """A row as ``Name: Petrel; Built: 2009``, without a header as ``Petrel | 2009``; empty cells are left out."""
    if not any(header):
        return " | ".join(cell for cell in cells if cell)
    names = [*header, *[""] * (len(cells) - len(header))]
    pairs = ((name, cell) for name, cell in zip(names, cells, strict=False) if cell)
    return "; ".join(f"{name.rstrip(':')}: {cell}" if name else cell for name, cell in pairs)

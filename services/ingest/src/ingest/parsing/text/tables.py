"""Converts tables to text. Each row becomes a line that is understandable without the other rows."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet


def rows(header: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the text of each row (see `row`), then the names of the empty columns."""
    filled: set[int] = set()
    for cells in body:
        filled.update(column for column, cell in enumerate(cells) if cell)
        yield row(header, cells)
    names = empty_columns(header, filled)
    if names:
        yield names


def empty_columns(header: Sequence[str], filled: AbstractSet[int]) -> str:
    """Return a line with the names of the columns without values; an empty string if all columns have values."""
    return row((), [name for column, name in enumerate(header) if column not in filled])


def row(header: Sequence[str], cells: Sequence[str]) -> str:
    """Return a row without empty cells: ``Name: Petrel; Built: 2009``, or ``Petrel | 2009`` without a header."""
    if not any(header):
        return " | ".join(cell for cell in cells if cell)
    names = [*header, *[""] * (len(cells) - len(header))]
    pairs = ((name, cell) for name, cell in zip(names, cells, strict=False) if cell)
    return "; ".join(f"{name.rstrip(':')}: {cell}" if name else cell for name, cell in pairs)

"""Tables as text: one line a row that can be understood, and found, without the rest of the table."""

from collections.abc import Iterator, Sequence


def rows(header: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as ``Name: Petrel; Built: 2009``; cells without text are left out.

    A table without a header gives ``Petrel | 2009``, one without a body its header.
    """
    if not body:
        yield " | ".join(cell for cell in header if cell)
        return
    labelled = any(header)
    for row in body:
        if not labelled:
            yield " | ".join(cell for cell in row if cell)
            continue
        names = [*header, *[""] * (len(row) - len(header))]
        pairs = ((name, cell) for name, cell in zip(names, row, strict=False) if cell)
        yield "; ".join(f"{name}: {cell}" if name else cell for name, cell in pairs)

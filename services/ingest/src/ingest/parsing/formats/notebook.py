"""Jupyter notebooks: the text cells, and the code cells with their output."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ingest.parsing.content import Head, Omission, Page
from ingest.parsing.formats import markdown
from ingest.parsing.frames import Request
from ingest.parsing.refusals import Unreadable
from ingest.parsing.text.clean import clean
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAX_OUTPUT = 10_000
"""Maximum number of characters of an output. A longer output is cut."""


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether the text looks like the beginning of a JSON object with notebook cells."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"cells"' in head and b'"cell_type"' in head


def parse(request: Request) -> Iterator[Head | Page | Omission]:
    """Yield the head and the single page of a notebook, and an omission if outputs are cut.

    Raises:
        Unreadable: The notebook is damaged.
    """
    try:
        notebook = msgspec.json.decode(text_of(request).removeprefix("\ufeff"))
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        read = [(str(cell["cell_type"]), _source(cell), _outputs(cell)) for cell in cells]
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Unreadable(f"The notebook is damaged or truncated: {error}.") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise Unreadable("The notebook is damaged: its cells do not follow the format.") from error
    yield Head("application/x-ipynb+json")
    outline, cut = Outline(), 0
    for kind, source, outputs in read:
        if kind == "markdown":
            markdown.fill(outline, source)
        elif kind == "heading":  # only in notebook formats before version 4
            outline.heading(1, source)
        else:
            outline.block(source, whole=True)
            for output in outputs:
                outline.block(f"Output:\n{output[:_MAX_OUTPUT]}", whole=True)
                cut += len(output) > _MAX_OUTPUT
    yield Page(0, outline.end_page())
    if cut:
        subject = "An output was" if cut == 1 else f"{cut} outputs were"
        yield Omission("TooLarge", f"{subject} cut. The limit is {_MAX_OUTPUT} characters for each output.")


def _source(cell: dict[str, Any]) -> str:
    return clean(_joined(cell["source"] if "source" in cell else cell["input"])).strip("\n")


def _outputs(cell: dict[str, Any]) -> list[str]:
    """Return the text outputs of a cell."""
    texts = []
    for output in cell.get("outputs") or ():
        data = output.get("data") or output
        text = _joined(output.get("text") or data.get("text/plain") or output.get("evalue") or "")
        texts.append(clean(_ESCAPE.sub("", text)).strip("\n"))
    return [text for text in texts if text.strip()]


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)

"""YAML: one block for each record, with a line ``path: value`` for each value."""

from collections.abc import Iterator
from typing import Any

import yaml

from ingest.parsing.content import Head, Page
from ingest.parsing.formats import plain, records
from ingest.parsing.frames import Request
from ingest.parsing.refusals import TooLarge, Unreadable
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_MAX_NODES = 1_000_000
"""Maximum number of mappings, sequences and scalars (also keys), with all aliases expanded."""
_NULL = "tag:yaml.org,2002:null"


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page. Invalid YAML, for example a template, is read as plain text.

    Raises:
        Unreadable: The document has no text.
        TooLarge: The document is too large when its aliases are expanded.
    """
    text = text_of(request)
    yield Head("application/yaml")
    outline = Outline()
    try:
        documents = list(yaml.compose_all(text, yaml.SafeLoader))
    except yaml.YAMLError:
        plain.fill(outline, text, is_prose=False)
    else:
        nodes = _Nodes(request.max_characters)
        for document in documents:
            if document is not None:
                records.fill(outline, nodes.value(document))
    sections = outline.end_page()
    if not sections:
        raise Unreadable("The document has no text.")
    yield Page(0, sections)


class _Nodes:
    """Converts nodes to values for `records`. Each occurrence of an alias counts towards the limits.

    Args:
        characters: Limit on the characters of all scalars.
    """

    def __init__(self, characters: int) -> None:
        self._characters = characters
        self._limit = characters
        self._nodes = _MAX_NODES

    def value(self, node: yaml.Node) -> Any:
        """Return the value of a node: mappings as tuples of pairs, sequences as lists, scalars as text or None.

        Raises:
            TooLarge: There are too many nodes, or too many characters.
        """
        self._nodes -= 1
        if self._nodes < 0:
            raise TooLarge(f"The document has more than {_MAX_NODES} values when its aliases are expanded.")
        match node:
            case yaml.MappingNode():
                return tuple((str(self.value(key)), self.value(item)) for key, item in node.value)
            case yaml.SequenceNode():
                return [self.value(item) for item in node.value]
            case _:
                self._characters -= len(node.value)
                if self._characters < 0:
                    raise TooLarge.characters(self._limit)
                return None if node.tag == _NULL else node.value

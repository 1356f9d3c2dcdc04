"""YAML: one block for each record, with a line ``path: value`` for each value."""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from ingest.parsing.content import Head, Page
from ingest.parsing.formats import plain, records
from ingest.parsing.frames import Request
from ingest.parsing.refusals import TooLarge
from ingest.parsing.text.decode import text_of
from ingest.parsing.text.outline import Outline

_MAX_NODES = 1_000_000
"""Maximum number of mappings, sequences and scalars (including keys), with all aliases expanded."""
_NULL = "tag:yaml.org,2002:null"


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page. Invalid YAML, for example a template, is read as plain text.

    Raises:
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
        converter = _NodeConverter(request.max_characters)
        for document in documents:
            if document is not None:
                records.fill(outline, converter.value(document))
    yield Page(0, outline.end_page())


class _NodeConverter:
    """Converts nodes to values for `records`. Each occurrence of an alias counts towards the limits.

    Args:
        max_characters: Maximum number of characters of all scalars together.
    """

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._remaining_characters = max_characters
        self._remaining_nodes = _MAX_NODES

    def value(self, node: yaml.Node) -> Any:
        """Return the value of a node: mappings as tuples of pairs, sequences as lists, scalars as text or None.

        Raises:
            TooLarge: There are too many nodes, or too many characters.
        """
        self._remaining_nodes -= 1
        if self._remaining_nodes < 0:
            raise TooLarge(f"The document has more than {_MAX_NODES} values when its aliases are expanded.")
        match node:
            case yaml.MappingNode():
                return tuple((self._key(key), self.value(item)) for key, item in node.value)
            case yaml.SequenceNode():
                return [self.value(item) for item in node.value]
            case _:
                self._remaining_characters -= len(node.value)
                if self._remaining_characters < 0:
                    raise TooLarge.characters(self._max_characters)
                return None if node.tag == _NULL else node.value

    def _key(self, node: yaml.Node) -> str:
        """Return a key as the document has it, also ``null``. A key that is not a scalar becomes JSON."""
        value = self.value(node)
        return node.value if isinstance(node, yaml.ScalarNode) else json.dumps(value, ensure_ascii=False)

import pytest
from ingest.parsing.languages import grammar, is_code
from tree_sitter import Parser

WITH = [".c", ".h", ".cpp", ".cs", ".go", ".java", ".php", ".py", ".rb", ".rs", ".js", ".jsx", ".tsx", ".ts"]


@pytest.mark.parametrize("suffix", WITH)
def test_grammars_are_at_hand(suffix: str) -> None:
    """Each can be loaded, and parses."""
    language = grammar(suffix, "")
    assert language is not None
    assert Parser(language).parse(b"x").root_node.end_byte == 1


def test_other_names() -> None:
    """Code without a grammar is code all the same; settings and prose are none."""
    assert is_code(".kt")
    assert grammar(".kt", "#!/usr/bin/python") is None
    assert not any(map(is_code, (".yaml", ".toml", ".txt", ".md", "")))


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("#!/usr/bin/env python3.12", True),
        ("#!/usr/bin/ruby -w", True),
        ("#!/usr/bin/env -S node --x", True),
        ("#!/bin/sh", False),
        ("# python", False),
    ],
)
def test_the_first_line_names_the_language(line: str, known: bool) -> None:
    """A file whose name says nothing has the language of the interpreter that it asks for."""
    assert (grammar("", f"{line}\n") is not None) is known

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.parsing.content import Page, Section
from ingest.parsing.formats import code
from ingest.parsing.registry import format_by_suffix

from ..conftest import parsed

METHODS = "\n".join(f"    def step_{number}(self):\n        return {number} * 10  # why\n" for number in range(30))
PYTHON = f'''"""Doc."""

import os

# Goes.
@cached
def go(a):
    return a

class Ferry(Boat):
    """A boat."""

    seats = 3

{METHODS}
x = 1
'''
SOURCES = {
    ".c": ("/* Doc. */\nstatic int *go(int a) {\n  return 0;\n}\n\nstruct S { int a; };\n", ["go", "S"]),
    ".cpp": (
        "#include <x>\ntemplate <class T> class V {\n int m();\n};\nint V::m() { return 1; }\n",
        ["V", "V::m"],
    ),
    ".cs": ("using X;\n/// <summary>s</summary>\n[A]\nclass C { int M() { return 1; } }\n", ["C"]),
    ".go": ("package a\n// Ferry goes.\ntype Ferry struct { N int }\nfunc (f *Ferry) Go() {}\n", ["Ferry", "Go"]),
    ".java": (
        "package a;\n/** Doc. */\n@X\npublic class C { int m() { return 1; } }\ninterface I {}\n",
        ["C", "I"],
    ),
    ".js": ("import a from 'b';\nexport const go = async () => {\n  return 1;\n};\nfunction f() {}\n", ["go", "f"]),
    ".php": ("<?php\nclass C { function m() {} }\nfunction f() {}\n", ["C", "f"]),
    ".rb": ("require 'x'\nclass C < D\n  def go; end\nend\ndef f; end\n", ["C", "f"]),
    ".rs": ("use x;\n/// Doc\n#[a]\npub struct P { a: i32 }\nimpl A for P { fn f() {} }\n", ["P", "P"]),
    ".ts": ("interface I { a: string }\nexport class C<T> { m(): void {} }\ntype A = 1;\n", ["I", "C", "A"]),
}


def sections(source: str, suffix: str) -> tuple[Section, ...]:
    _, page = parsed(code.parse, source, suffix)
    assert isinstance(page, Page)
    return page.sections


def test_functions_and_classes_are_sections() -> None:
    """A function is a section, including the comment above it. A long class has a section for each method."""
    found = sections(PYTHON, ".py")
    paths = [section.headings for section in found]
    assert paths[:3] == [(), ("go",), ("Ferry",)]
    assert paths[3:33] == [("Ferry", f"step_{number}") for number in range(30)]
    assert paths[33:] == [()]
    assert found[1].text == "# Goes.\n@cached\ndef go(a):\n    return a"
    assert found[2].text.startswith('class Ferry(Boat):\n    """A boat."""')
    assert found[-1].text == "x = 1"


@pytest.mark.parametrize("suffix", SOURCES)
def test_languages(suffix: str) -> None:
    """Each grammar finds the definitions, with their comments and attributes."""
    source, names = SOURCES[suffix]
    found = sections(source, suffix)
    assert [section.headings[-1] for section in found if section.headings] == names
    assert "".join("".join(section.text.split()) for section in found) == "".join(source.split())
    for section in found:
        assert not section.text.rstrip().endswith(("Doc", "*/", "]", "goes."))


def test_a_bracket_by_itself_is_no_section() -> None:
    """The closing bracket of a type belongs to its last method."""
    methods = "\n".join(f"  int method{number}() {{ return {number}; }}" for number in range(60))
    found = sections(f"class C {{\n{methods}\n}}\n", ".java")
    assert found[-1].headings == ("C", "method59")
    assert found[-1].text.endswith("\n}")


def test_a_class_in_a_variable_is_split() -> None:
    """A long class expression has a section for each method, like a class declaration."""
    methods = "\n".join(f"  step{number}() {{ return {number} * 10; }}" for number in range(60))
    found = sections(f"const Ferry = class {{\n{methods}\n}};\n", ".js")
    assert [section.headings for section in found[:2]] == [("Ferry",), ("Ferry", "step0")]
    assert found[-1].headings == ("Ferry", "step59")


@pytest.mark.parametrize("suffix", [".kt", ".sql", ".sh", ""])
def test_without_a_grammar_blocks_stay_together(suffix: str) -> None:
    """Without a grammar, a file is one section. Its blocks end at blank lines before lines without indentation."""
    source = "fun a() {\n    x\n\n    y\n}\n\nfun b() {\n    z\n}"
    [section] = sections(source, suffix)
    assert section.text == source
    assert [section.text[start:end] for start, end in section.whole] == [source[:24], source[26:]]


def test_the_first_line_may_name_the_language() -> None:
    """A script without a suffix is parsed with the grammar of its interpreter's language."""
    source = "#!/usr/bin/env python3\ndef go():\n    pass\n"
    assert [section.headings for section in sections(source, "")] == [("go",)]


lines = st.sampled_from(
    ["def f():", "    x = (1", "class C:", "    def g(self): pass", "}", "{", "", "# note", "int h() { return 1; }",
     "@a", "  # in", '"""', "fn k() {}", "end", "const q = () => {", "namespace n {"]
)  # fmt: skip


@given(st.lists(lines, max_size=40), st.sampled_from([".py", ".cpp", ".ts", ".rs", ".rb", ".go", ".php", ".sql"]))
def test_every_line_is_in_one_section(source: list[str], suffix: str) -> None:
    """Even for broken syntax, the sections are the file's lines in order, and all spans are within the text."""
    if not any(line.strip() for line in source):
        return
    found = sections("\n".join(source), suffix)
    found_lines = [line for section in found for line in section.text.split("\n") if line.strip()]
    assert found_lines == [line.rstrip() for line in source if line.strip()]
    for section in found:
        assert "\n".join(section.text[a:b] for a, b in section.whole).split() == section.text.split()


def test_types_are_split_up_to_the_maximum_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a maximum depth of 2, types on two levels are split. A type on the third level is one section."""
    monkeypatch.setattr(code, "_MAX_DEPTH", 2)
    methods = textwrap.indent(METHODS, "        ")
    source = f"class A:\n    class B:\n        class C:\n{methods}"
    assert [section.headings for section in sections(source, ".py")] == [("A",), ("A", "B"), ("A", "B", "C")]


def test_indentation_is_kept() -> None:
    """A method's text keeps the file's indentation."""
    assert sections(PYTHON, ".py")[3].text == "    def step_0(self):\n        return 0 * 10  # why"


def test_other_names() -> None:
    """Source code in a language without a grammar is code, and its first line cannot change its language. Settings
    and prose are not code.
    """
    assert format_by_suffix(".kt") is format_by_suffix(".py")
    assert code.grammar(".kt", "#!/usr/bin/python") is None
    assert not any(
        format_by_suffix(name) is format_by_suffix(".py") for name in (".yaml", ".toml", ".txt", ".md", "")
    )


@pytest.mark.parametrize(
    ("line", "suffix"),
    [
        ("#!/usr/bin/env python3.12", ".py"),
        ("#!/usr/bin/ruby -w", ".rb"),
        ("#!/usr/bin/env -S node --x", ".js"),
        ("#!/bin/sh", ".sh"),
        ("# python", ".sh"),
    ],
)
def test_the_first_line_names_the_language(line: str, suffix: str) -> None:
    """If the name has no suffix, the interpreter in the first line determines the language."""
    assert code.grammar("", f"{line}\n") == code.grammar(suffix, "")

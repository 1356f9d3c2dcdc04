"""Source code: one section for each function, method and type, as the grammar of the language determines.

Each non-blank line of the file is in exactly one section, without trailing white space. Without a grammar for the
language, blank lines and indentation determine which lines belong together.
"""

import importlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Language, Node, Parser

from ingest.parsing.content import Head, Page, Section
from ingest.parsing.frames import Request
from ingest.parsing.registry import format_by_suffix
from ingest.parsing.text.clean import clean
from ingest.parsing.text.decode import text_of

# For each grammar: its module and the function that returns it. C is parsed as C++, JavaScript as TSX.
_GRAMMARS = {
    "c++": ("tree_sitter_cpp", "language"),
    "c#": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_SUFFIXES = {
    "c++": ".c .h .cc .cpp .cxx .hh .hpp .hxx .ipp .cu",
    "c#": ".cs",
    "go": ".go",
    "java": ".java",
    "php": ".php",
    "python": ".py .pyi .pyw",
    "ruby": ".rb .rake",
    "rust": ".rs",
    "tsx": ".js .jsx .mjs .cjs .tsx",
    "typescript": ".ts .mts .cts",
}
_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_SHEBANG = re.compile(r"#!.*?\b(python|ruby|node|php)[\d.]*\b")
_BY_INTERPRETER = {"python": "python", "ruby": "ruby", "node": "tsx", "php": "php"}

_SHEBANG_BYTES = re.compile(rb"(?:\xef\xbb\xbf)?#!")
_MAX_WHOLE_TYPE_CHARACTERS = 800
"""A type with at most this many characters is one section, including its methods."""
_MAX_NAME_CHARACTERS = 100
"""Maximum number of characters of a definition's name. A longer name is cut."""
_MAX_DEPTH = 50
"""Maximum nesting depth of types that are split into sections. A deeper type is one section."""
_WORD = re.compile(r"\w")
# fmt: off
_FUNCTIONS = frozenset((
    "function_definition", "function_declaration", "generator_function_declaration", "method_definition",
    "method_declaration", "constructor_declaration", "compact_constructor_declaration", "destructor_declaration",
    "operator_declaration", "local_function_statement", "function_item", "macro_definition", "method",
    "singleton_method", "preproc_function_def", "variable_declarator",
))
_TYPES = frozenset((
    "class_definition", "class_declaration", "abstract_class_declaration", "class_specifier", "struct_specifier",
    "union_specifier", "enum_specifier", "interface_declaration", "enum_declaration", "record_declaration",
    "struct_declaration", "annotation_type_declaration", "trait_declaration", "delegate_declaration",
    "type_alias_declaration", "type_spec", "impl_item", "struct_item", "enum_item", "trait_item", "union_item",
    "class", "module",
))
_NAMESPACES = frozenset((
    "namespace_declaration", "namespace_definition", "internal_module", "mod_item", "module_declaration",
))
# Nodes that contain a definition and text before it, for example a function with its decorators.
_WRAPPERS = frozenset((
    "decorated_definition", "export_statement", "ambient_declaration", "template_declaration", "type_declaration",
    "lexical_declaration", "variable_declaration", "declaration", "type_definition",
))
_BODIES = frozenset((
    "block", "class_body", "declaration_list", "field_declaration_list", "interface_body", "enum_body",
    "statement_block", "body_statement", "linkage_specification", "enum_body_declarations", "preproc_ifdef",
    "preproc_if", "preproc_else", "namespace_use_group", "compound_statement", "expression_statement",
))
_COMMENTS = frozenset(("comment", "line_comment", "block_comment", "attribute_item"))
# fmt: on


@dataclass(frozen=True, slots=True)
class _Definition:
    """The lines of a definition, from ``first`` up to but excluding ``last``."""

    first: int
    last: int
    name: str
    node: Node
    is_function: bool


def recognises(_path: Path, head: bytes) -> bool:
    """Return whether the first line of a text is a shebang."""
    return _SHEBANG_BYTES.match(head) is not None


def grammar(suffix: str, text: str) -> Language | None:
    """Return the grammar for a file, or None if its language has none.

    The suffix determines the language, or, if no format has the suffix, the interpreter in the first line.
    """
    language = _BY_SUFFIX.get(suffix, "")
    if format_by_suffix(suffix) is None:
        shebang = _SHEBANG.match(text)
        language = _BY_INTERPRETER[shebang[1]] if shebang else ""
    if not language:
        return None
    module, function = _GRAMMARS[language]
    return Language(getattr(importlib.import_module(module), function)())


def parse(request: Request) -> Iterator[Head | Page]:
    """Yield the head and the single page of a source file."""
    text = clean(text_of(request))
    language = grammar(request.suffix.lower(), text)
    lines = text.split("\n")
    if language is None:
        sections = _joined([_section((), lines)])
    else:
        tree = Parser(language).parse(text.encode())
        sections = _joined(_sections(tree.root_node, lines, 0, len(lines), ()))
    yield Head("text/x-source")
    yield Page(0, sections)


def _joined(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """Return the sections, skipping None. A section with only punctuation is appended to the previous section."""
    joined: list[Section] = []
    for section in sections:
        if section is None:
            continue
        if joined and not _WORD.search(section.text):
            previous = joined.pop()
            text = f"{previous.text}\n{section.text}"
            section = Section(previous.headings, text, (*previous.whole, (len(previous.text) + 1, len(text))))
        joined.append(section)
    return tuple(joined)


def _sections(
    scope: Node, lines: Sequence[str], first: int, last: int, path: tuple[str, ...]
) -> Iterator[Section | None]:
    """Yield the sections of a scope's lines from ``first`` up to but excluding ``last``; None for blank lines."""
    position = first
    for definition in _definitions(scope, lines, first, last):
        yield _section(path, lines[position : definition.first])
        inner = (*path, definition.name) if definition.name else path
        size = sum(map(len, lines[definition.first : definition.last]))
        if definition.is_function or size <= _MAX_WHOLE_TYPE_CHARACTERS or len(path) >= _MAX_DEPTH:
            yield _section(inner, lines[definition.first : definition.last])
        else:
            yield from _sections(definition.node, lines, definition.first, definition.last, inner)
        position = definition.last
    yield _section(path, lines[position:last])


def _definitions(scope: Node, lines: Sequence[str], first: int, last: int) -> Iterator[_Definition]:
    """Yield the outermost definitions within a scope with the comments above them. Their lines are disjoint."""
    position = first
    for node, outer in _outermost(scope):
        begin, end = outer.start_point.row, outer.end_point.row + 1
        if outer.end_point.column == 0:  # the node ends with a line break
            end -= 1
        if begin < position or end > last or end <= begin:
            continue  # it shares a line with another definition, or is not within the scope
        begin = _first_row(outer, begin, position)
        value = node.child_by_field_name("value")
        scope_of_class = value if value is not None and value.type == "class" else None  # const A = class { … }
        is_function = node.type in _FUNCTIONS and scope_of_class is None
        yield _Definition(begin, end, _name(node, lines), scope_of_class or node, is_function)
        position = end


def _outermost(scope: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the outermost definitions in order, each with its outermost wrapper, or itself if it has no wrapper."""
    pending: list[tuple[Node, Node | None]] = [(child, None) for child in reversed(scope.named_children)]
    while pending:
        node, outer = pending.pop()
        if _is_definition(node):
            yield node, outer or node
        elif node.type in _WRAPPERS:
            pending += [(child, outer or node) for child in reversed(node.named_children)]
        elif node.type in _BODIES:
            pending += [(child, None) for child in reversed(node.named_children)]


def _is_definition(node: Node) -> bool:
    if node.type == "variable_declarator":  # const f = () => …
        value = node.child_by_field_name("value")
        return value is not None and value.type in ("arrow_function", "function_expression", "class")
    if node.type in ("class_specifier", "struct_specifier", "union_specifier", "enum_specifier"):
        return node.child_by_field_name("body") is not None  # without a body, this is a reference to the type
    return node.type in _FUNCTIONS or node.type in _TYPES or node.type in _NAMESPACES


def _first_row(node: Node, begin: int, first: int) -> int:
    """Return the first row of a node, including the comments and attributes directly above it.

    Args:
        node: The node.
        begin: The row at which the node itself begins.
        first: Comments that begin above this row are excluded.
    """
    before = node.prev_named_sibling
    while before is not None and before.type in _COMMENTS and first <= before.start_point.row:
        end = before.end_point.row - (before.end_point.column == 0)
        if end < begin - 1 or end >= begin:
            break
        begin = before.start_point.row
        before = before.prev_named_sibling
    return begin


def _name(node: Node, lines: Sequence[str]) -> str:
    """Return the name of a definition; the beginning of its first line if it has no name."""
    named = node.child_by_field_name("type" if node.type == "impl_item" else "name")
    declarator = node.child_by_field_name("declarator")
    while named is None and declarator is not None:  # in C, nested declarators contain the name
        inner = declarator.child_by_field_name("declarator")
        named, declarator = (declarator, None) if inner is None else (None, inner)
    text = named.text.decode(errors="replace") if named is not None and named.text else ""
    if not text:
        text = lines[node.start_point.row].strip().rstrip("{:( ")
    return " ".join(text.split())[:_MAX_NAME_CHARACTERS]


def _section(path: tuple[str, ...], lines: Sequence[str]) -> Section | None:
    """Return a section of whole lines, with the spans that should not be split; None if the lines are blank.

    A span begins at an unindented line after a blank line, unless the line closes a bracket.
    """
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    lines = list(itertools.dropwhile(lambda line: not line, lines))
    if not lines:
        return None
    whole: list[tuple[int, int]] = []
    begin = end = position = 0
    for line in lines:
        if position - end > 1 and line and not line[0].isspace() and line[0] not in ")}]":
            whole.append((begin, end))
            begin = position
        position += len(line)
        end = position if line else end
        position += 1
    whole.append((begin, end))
    return Section(path, "\n".join(lines), tuple(whole))

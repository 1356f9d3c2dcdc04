"""Programming languages: the names of their files, and the grammars that are at hand for them."""

import importlib
import re

from tree_sitter import Language

# Modules of grammars, with the function that gives each. C is read as C++, JavaScript as TypeScript.
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
    # Without a grammar: by blank lines and indentation.
    "": ".sh .bash .zsh .fish .ps1 .bat .sql .kt .kts .swift .scala .lua .pl .pm .r .jl .dart .ex .exs .erl .hs "
    ".ml .mli .clj .lisp .el .f90 .f95 .pas .vb .groovy .gradle .m .mm .proto .thrift .graphql .css .scss .less "
    ".tf .hcl .cmake .mk .asm .s .v .sv .vhd .zig .nim .d .cob .cbl .abap .sol .vue .svelte",
}
_OF_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_SHEBANG = re.compile(r"#!.*?\b(python|ruby|node|php)[\d.]*\b")
_OF_INTERPRETER = {"python": "python", "ruby": "ruby", "node": "tsx", "php": "php"}


def is_code(suffix: str) -> bool:
    """Whether files with such names, in lower case with the dot, hold source code."""
    return suffix in _OF_SUFFIX


def grammar(suffix: str, text: str) -> Language | None:
    """The grammar of a file's language, by its name, or by the interpreter that its first line asks for."""
    language = _OF_SUFFIX.get(suffix)
    if language is None:
        shebang = _SHEBANG.match(text)
        language = _OF_INTERPRETER[shebang[1]] if shebang else ""
    if not language:
        return None
    module, function = _GRAMMARS[language]
    return Language(getattr(importlib.import_module(module), function)())

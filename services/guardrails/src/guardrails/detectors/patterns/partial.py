r"""From a pattern, the pattern that also sees matches that have only begun.

To hold back as little as possible, a stream must know where a match could still begin or grow, and must agree
with the matcher of whole texts on which match that is. Both follow from one change: at the end of what is there,
every atom of the pattern may take the end instead of its character, and so may everything after it. A path of the
matcher that reaches the end then goes on to succeed; paths that stay within the text are those of the pattern
itself, in the same order of preference. The leftmost match of the changed pattern is therefore either a match of
the pattern that no further text can change, or it runs into the end: then from its first character on everything
is undecided, and nothing before it is.

The two are told apart by a sentinel, one byte that is no part of any UTF-8 text: a match that needed the end has
swallowed it. So with ``E`` for ``\C?\z`` (the sentinel if it is next, at the very end):

- a character, class or ``.``: ``c`` becomes ``(?:c|E)``;
- what looks ahead (``\b \B $ \z``) cannot be known at the end: ``(?:E|\b)``, the end first;
- what looks back (``^ \A``) is known, and holds once the sentinel is swallowed: ``(?:^|\z)``.

Groups, alternations and repetitions stay as they are, so no tree is needed, only the tokens of RE2's syntax
(https://github.com/google/re2/wiki/Syntax), and time stays linear.
"""

import re
from collections.abc import Iterator

SENTINEL = b"\xff"
"""Ends a text that may grow."""

_END = r"\C?\z"
_COUNT = r"(?:0|[1-9][0-9]{0,3})"  # what RE2 does not read as a count is literal text to it, and to us
TOKEN = re.compile(
    rf"""
      \\Q (?P<quoted> .*? ) (?: \\E | \Z )
    | (?P<ahead> \\[bBz] | \$ )
    | (?P<back> \\A | \^ )
    | (?P<byte> \\C )
    | (?P<structure>
          \( (?: \? (?: P?<[^>]*> | [a-zA-Z-]* [:)] ) )? | [)|]
        | [*+?] | \{{ {_COUNT} (?: , {_COUNT}? )? \}}
      )
    | (?P<atom>
          \\ (?: [pP] (?: \{{ [^}}]* \}} | . ) | x (?: \{{ [^}}]* \}} | .. ) | [0-7]{{1,3}} | . )
        | \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^\]] )* \]
        | .
      )
    """,
    re.VERBOSE | re.DOTALL,
)


def partial(pattern: str) -> str:
    r"""The changed pattern, for texts with the sentinel at their end.

    Args:
        pattern: In RE2's syntax, and accepted by RE2.

    Raises:
        ValueError: The pattern asks for single bytes (``\C``), which may be parts of characters.
    """
    return "".join(_changed(pattern))


def _changed(pattern: str) -> Iterator[str]:
    for token in TOKEN.finditer(pattern):
        text = token.group()
        match token.lastgroup:
            case "structure":
                yield text
            case "ahead":
                yield f"(?:{_END}|{text})"
            case "back":
                yield rf"(?:{text}|\z)"
            case "byte":
                raise ValueError(r"\C is not supported: it can split a character")
            case "quoted":
                for character in token["quoted"]:
                    yield f"(?:{re.escape(character)}|{_END})"
            case _:
                yield f"(?:{text}|{_END})"

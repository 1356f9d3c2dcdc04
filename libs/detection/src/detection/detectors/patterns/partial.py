r"""Changes a pattern so that it also matches text that is only the beginning of a match.

A stream needs the first position at which a match may still begin or grow, to hold back as little text as possible.
It must also find the same matches as a search of the whole text. One change of the pattern achieves both: every
atom of the pattern may match the end of the available text instead of its character. A search path of RE2 that
reaches the end then succeeds. All other paths are the paths of the original pattern, in the same order of
preference. Therefore the leftmost match of the changed pattern has two cases. Either it is a match of the pattern
that further text cannot change, or it reaches the end. In the second case, the text is undecided from the first
character of the match on.

A sentinel distinguishes the two cases. It is one byte that does not occur in UTF-8. A match that reaches the end
includes the sentinel. ``E`` is ``\C?\z``: an optional sentinel, and the end. The changes are:

- a character, a class or ``.``: ``c`` becomes ``(?:c|E)``;
- assertions that look ahead (``\b \B $ \z``) are unknown at the end: ``(?:E|\b)``, with the end first;
- assertions that look back (``^ \A``) are known, and are true after the sentinel: ``(?:^|\z)``.

Groups, alternations and repetitions are unchanged. Therefore the change needs only the tokens of RE2's syntax
(https://github.com/google/re2/wiki/Syntax), not a syntax tree. The time of a search remains linear.
"""

import re
from collections.abc import Iterator

SENTINEL = b"\xff"
"""The byte at the end of a text that may grow."""

_END = r"\C?\z"
_COUNT = r"(?:0|[1-9][0-9]{0,3})"  # RE2 and this module treat other content of braces as literal text
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
    r"""Return the changed pattern, for texts with the sentinel at their end.

    Args:
        pattern: A pattern that RE2 accepts.

    Raises:
        ValueError: The pattern matches single bytes (``\C``), which may be parts of characters.
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

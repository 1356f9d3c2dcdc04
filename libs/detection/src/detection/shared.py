"""The detectors that every process with this library can run, their limits, and the digest of their code.

The guardrails service lists these detectors with the digest. A gateway with the same digest and the same limits
gets the same results as the service.
"""

import functools
import hashlib
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import text
from servicekit.errors import PayloadTooLarge

import detection
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.factory import BuiltIn
from detection.detectors.invisible_text import invisible_text
from detection.detectors.patterns.matching import Limits
from detection.detectors.prompt_injection import prompt_injection
from detection.detectors.regex import regex
from detection.moderation.hold_back import HoldLimits

_ENGINES = ("google-re2", "msgspec")


@dataclass(frozen=True, slots=True)
class JudgingLimits:
    """The limits on texts, on held-back text and on the search for patterns.

    Attributes:
        longest_text: The maximum number of code points of all texts of a request together, or of one piece of a
            growing text.
        holding: The limits on held-back text.
        patterns: The limits of the detectors that search for patterns.
    """

    longest_text: int = 1_000_000
    holding: HoldLimits = field(default_factory=HoldLimits)
    patterns: Limits = field(default_factory=Limits)

    def check(self, size: int, name: str) -> None:
        """Check the size of texts.

        Raises:
            PayloadTooLarge: The texts are too long; the error names the field.
        """
        if size > self.longest_text:
            raise PayloadTooLarge(f"`{name}` is longer than {self.longest_text} characters.", field=name)


def shared_detectors(limits: Limits) -> Sequence[BuiltIn[Any]]:
    """Return the factories of the detectors that only search for patterns."""
    factories: list[BuiltIn[Any]] = [
        ban_substrings(limits),
        invisible_text(limits),
        prompt_injection(limits),
        regex(limits),
    ]
    return [replace(factory, library=digest()) for factory in factories]


@functools.cache
def digest() -> str:
    """Return a digest of this library, the package `text`, and the versions of the engines, Python and Unicode."""
    code = hashlib.sha256()
    for package in (detection, text):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            code.update(f"{path.relative_to(root)}\0".encode())
            code.update(path.read_bytes() + b"\0")
    engines = [f"{name} {version(name)}" for name in _ENGINES]
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}, Unicode {unicodedata.unidata_version}"
    code.update("\0".join([*engines, python]).encode())
    return code.hexdigest()

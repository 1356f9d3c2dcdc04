"""Creates unique names for the files within a file. The names are safe to show."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_MAX_CHARACTERS = 200
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class MemberNames:
    """Creates unique names for the files within a file."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique_name(self, path: str, default: str = "file") -> str:
        """Return the name of a file, derived from its path in the container.

        Args:
            path: The path in the container; may contain any characters.
            default: The name for an empty path.
        """
        name = "/".join(_parts(path)) or default
        if len(name) > _MAX_CHARACTERS:
            suffix = PurePosixPath(name).suffix[:20]
            name = name[: _MAX_CHARACTERS - len(suffix)] + suffix
        unique, number = name, 1
        while unique in self._used:
            number += 1
            outer, _, last = name.rpartition("/")
            pure = PurePosixPath(last)
            unique = "/".join([*[outer] * bool(outer), f"{pure.stem} ({number}){pure.suffix}"])
        self._used.add(unique)
        return unique


def _parts(path: str) -> Iterable[str]:
    for part in _CONTROLS.sub("", path.replace("\\", "/")).split("/"):
        if part.strip() not in ("", ".", ".."):
            yield part.strip()

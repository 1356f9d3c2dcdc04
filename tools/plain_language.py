"""Count words of an inflated style; fail if their number in the repository grows.

Usage: python tools/plain_language.py [--update | --list WORD]

Without an option, the program compares the counts with the baseline, plain_language.json, and fails if a count is
higher. A count is for the whole repository, so that a moved file does not change it. --update lowers the baseline
to the counts. --list prints all places of a word.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_suffix(".json")

ADVICE = {
    "nobody": "say who or what does not: `no caller`, `no other service`",
    "somebody": "name the person or the component",
    "everybody": "name them: `all callers`",
    "whoever": "name the person or the component: `the caller that`",
    "whatever": "name the set: `all parameters that`, `any exception`",
    "stands": "`is`, `appears` or `belongs`; `stands for` is `represents` or `replaces`",
    "there are none": "say what is missing: `the list is empty`",
    "there is none": "say what is missing: `the file does not exist`",
    "lest": "`so that … not`",
    "as it were": "leave it out",
}
"""The words, each with the advice for its replacement."""

_SUFFIXES = {".md", ".proto", ".py", ".sh", ".toml", ".yaml", ".yml"}
_EXCLUDED = (
    "libs/contracts/src/",
    "requirements/",
    "services/guardrails/src/guardrails/detectors/groundedness/words.py",  # lists of words to find in texts
    "tests/workspace/test_plain_language",
    "tools/plain_language",
)
_WORDS = re.compile(r"\b(" + "|".join(ADVICE).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def words(line: str) -> Iterator[str]:
    """Yield the words of the list that a line contains, in lower case."""
    for match in _WORDS.finditer(line):
        yield " ".join(match[0].lower().split())


def places(root: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield each word with its file and line number, for the files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = root / name
        if path.suffix in _SUFFIXES and not name.startswith(_EXCLUDED) and path.is_file():
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield from ((word, path, number) for word in words(line))


def problems(counts: Counter[str], baseline: dict[str, int]) -> list[str]:
    """Return a message for each word whose count is above the baseline."""
    return [
        f"`{word}` is in the text {counts[word]} times, {counts[word] - baseline.get(word, 0)} more than before. "
        f"Write instead: {ADVICE[word]}. Find it with: git diff main | grep -iw '^+.*{word}'"
        for word in sorted(ADVICE)
        if counts[word] > baseline.get(word, 0)
    ]


def main() -> int:
    """Run the command line; return 1 if a count is above the baseline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="lower the baseline to the counts")
    parser.add_argument("--list", metavar="WORD", choices=ADVICE, help="print all places of a word")
    arguments = parser.parse_args()
    found = list(places(ROOT))
    if arguments.list:
        for word, path, number in found:
            if word == arguments.list:
                print(f"{path.relative_to(ROOT)}:{number}")
        return 0
    counts = Counter(word for word, _, _ in found)
    baseline: dict[str, int] = json.loads(BASELINE.read_text())
    if arguments.update:
        lower = {word: min(counts[word], baseline.get(word, 0)) for word in sorted(ADVICE)}
        BASELINE.write_text(json.dumps(lower, indent=1) + "\n")
        baseline = lower
    messages = problems(counts, baseline)
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())

"""Sections of bench/results/eval.md, which several evaluations write."""

import re
from pathlib import Path


def write_section(page: Path, heading: str, text: str) -> None:
    """Replace the section with a heading in a page, or append it; other sections are unchanged."""
    written = page.read_text() if page.exists() else ""
    others = [part for part in re.split(r"(?m)^(?=## )", written) if part and not part.startswith(f"{heading}\n")]
    page.write_text("".join(f"{part.rstrip()}\n\n" for part in others) + f"{heading}\n\n{text.strip()}\n")

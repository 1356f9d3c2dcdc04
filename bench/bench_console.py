"""Measure the frames of the console while an answer streams.

Usage: python bench/bench_console.py [SECONDS]

The program starts a platform and Chromium. The page receives 100 tokens per second. The program prints the number
of frames, the numbers of frames of more than 25 and 50 ms, and the median and the longest frame. The result depends
on the load of the machine: run the benchmark on a quiet machine.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from causeway_testing.console import STREAM, long_answer
from causeway_testing.stack import run_stack
from playwright.sync_api import sync_playwright

TOKENS_PER_SECOND = 100
SECONDS = 10.0
FRAMES = """() => {
  window.frames = []
  let last = performance.now()
  const frame = (now) => {
    if (document.querySelector('.answer[aria-busy=true]')) window.frames.push(now - last)
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
}"""


def main() -> int:
    """Run the command line."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    program = shutil.which("chromium")
    if program is None:
        print("chromium is not installed; install it with `apt-get install chromium`", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as data, run_stack(Path(data), {}) as running:
        print(json.dumps(measure(running["url"], program, seconds)))
    return 0


def measure(url: str, program: str, seconds: float) -> dict[str, Any]:
    """Stream an answer in the console; return the number of frames and their durations in milliseconds."""
    tokens = long_answer(200)[: int(seconds * TOKENS_PER_SECOND)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.goto(url)
        page.evaluate(STREAM, {"tokens": tokens, "at_once": 1, "pace": 1000 / TOKENS_PER_SECOND, "known": ["a.md"]})
        page.evaluate(FRAMES)
        page.get_by_label("Question", exact=True).fill("What do the documents say?")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="How this answer was made").wait_for(timeout=1000 * (3 * seconds + 30))
        frames = sorted(page.evaluate("window.frames"))
        browser.close()
    return {
        "load_average": os.getloadavg()[0],
        "tokens": len(tokens),
        "seconds": round(sum(frames) / 1000, 2),
        "frames": len(frames),
        "over_25_ms": sum(frame > 25 for frame in frames),
        "over_50_ms": sum(frame > 50 for frame in frames),
        "median_ms": round(frames[len(frames) // 2], 1),
        "longest_ms": round(frames[-1], 1),
    }


if __name__ == "__main__":
    sys.exit(main())

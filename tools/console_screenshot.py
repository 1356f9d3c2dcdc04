"""Write the picture of the console for the README: an answer and the cited page.

Usage: python tools/console_screenshot.py [FILE]

The program starts a platform with the sample corpus and submits a question in Chromium, which must be installed.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "images" / "console.png"
QUESTION = "When will the pivot bearing be renewed?"


def main() -> int:
    """Run the command line; return 1 if Chromium is missing."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    program = shutil.which("chromium")
    if program is None:
        print("chromium is not installed; install it with `apt-get install chromium`", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as data:
        command = [
            str(Path(sys.executable).with_name("causeway")),
            "up",
            "--port",
            "0",
            "--json",
            "--data-dir",
            data,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stack:
            try:
                assert stack.stdout is not None
                url = json.loads(stack.stdout.readline())["url"]
                upload_corpus(url)
                take_screenshot(url, program, target)
            finally:
                stack.terminate()
    print(target)
    return 0


def upload_corpus(url: str) -> None:
    """Upload the sample corpus and wait until all documents are searchable."""
    with httpx.Client(base_url=url, timeout=120) as http:
        files = [("file", (path.name, path.read_bytes())) for path in sorted((ROOT / "examples/corpus").iterdir())]
        accepted = http.post("/documents", data={"index": "handbook"}, files=files).raise_for_status().json()
        for job in accepted["jobs"]:
            http.get(f"/jobs/{job['id']}/events").raise_for_status()


def take_screenshot(url: str, program: str, target: Path) -> None:
    """Submit the question, open a source of the answer, and write the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="light")
        page.goto(url)
        page.get_by_label("Question", exact=True).fill(QUESTION)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="How this answer was made").wait_for()
        page.locator(".cite").last.click()
        page.locator("canvas[data-drawn='4']").wait_for()
        page.mouse.move(0, 0)
        page.screenshot(path=str(target))
        browser.close()


if __name__ == "__main__":
    sys.exit(main())

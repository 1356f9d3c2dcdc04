"""Ask a question on Open WebUI's page in Chromium, and print the text of the page as JSON.

Usage: open_webui_page.py URL MODEL QUESTION EXPECTED
"""

import json
import shutil
import sys

from playwright.sync_api import sync_playwright

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
MILLISECONDS = 120_000


def main(url: str, model: str, question: str, expected: str) -> None:
    """Type the question, send it, and wait for the expected text."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page()
        page.set_default_timeout(MILLISECONDS)
        # A new user first sees the release notes.
        page.add_locator_handler(page.get_by_role("button", name="Okay, Let's Go!"), lambda button: button.click())
        page.goto(f"{url}/?models={model}")
        page.locator("#chat-input").click()
        page.keyboard.type(question)
        page.locator("#send-message-button").click()
        page.get_by_text(expected).first.wait_for()
        print(json.dumps(page.inner_text("body")))
        browser.close()


main(*sys.argv[1:])

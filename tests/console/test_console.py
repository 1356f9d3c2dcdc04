"""The console in Chromium with a platform that accepts keys and tokens."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.console import ROOT, STREAM, Platform, RecordedPage, long_answer
from playwright.sync_api import Page, Route, expect

Visit = Callable[..., RecordedPage]
QUESTION = "When will the pivot bearing be renewed?"
MAX_BYTES = 250_000


@pytest.fixture(scope="module")
def corpus(platform: Platform) -> str:
    """Fill the index with the sample corpus."""
    with platform.client() as http:
        files = [("file", (path.name, path.read_bytes())) for path in sorted((ROOT / "examples/corpus").iterdir())]
        jobs = http.post("/documents", data={"index": "handbook"}, files=files).raise_for_status().json()["jobs"]
        for job in jobs:
            with http.stream("GET", f"/jobs/{job['id']}/events") as events:
                assert "event: end" in "".join(events.iter_text())
    return "handbook"


def ask(page: Page, question: str = QUESTION) -> None:
    """Ask a question, and wait until its answer is complete."""
    turns = page.locator("article").count()
    page.get_by_label("Question", exact=True).fill(question)
    page.keyboard.press("Enter")
    wait_for_answer(page, turns)


def wait_for_answer(page: Page, turn: int) -> None:
    """Wait until an answer is complete. The lines below its text arrive last."""
    answer = page.locator("article").nth(turn)
    expect(answer.get_by_role("button", name="How this answer was made")).to_be_visible()


def test_from_an_empty_platform_to_a_cited_answer(visit: Visit, platform: Platform) -> None:
    """A user loads the sample corpus, asks a question, and sees the cited page beside the answer."""
    visited = visit()
    page = visited.open()
    upload = page.get_by_role("link", name="Upload documents")
    expect(upload).to_be_visible()
    assert "/documents" not in visited.bytes, "the page asked for the documents of an index that does not exist"
    upload.click()
    page.get_by_role("button", name="Load the sample corpus").click()
    expect(page.get_by_text("20 of 20 indexed")).to_be_visible(timeout=90_000)
    page.get_by_role("link", name="Ask about these documents").click()
    expect(page.get_by_role("button", name="default · hybrid")).to_be_visible()
    ask(page)
    answer = page.locator("article .prose")
    expect(answer).to_contain_text("4 January to 19 March 2027")
    expect(answer).not_to_contain_text("[brannoch")
    answer.get_by_role("button", name=re.compile(r"Source \d: brannoch.*#page=4")).first.click()
    source = page.get_by_label("Source", exact=True)
    expect(source.get_by_role("img", name="Page 4, with the passages marked")).to_be_visible()
    expect(source.locator("canvas[data-drawn='4']")).to_be_visible()
    expect(source).to_contain_text("Page 4 of 5")
    expect(source).to_contain_text("largest task is the renewal of the pivot bearing")
    visited.check()


def test_how_an_answer_was_made(visit: Visit, corpus: str) -> None:
    """The panel shows the times, the trace id, the passages with their scores, the prompt and the detections."""
    visited = visit()
    page = visited.open()
    ask(page)
    page.get_by_role("button", name="How this answer was made").click()
    panel = page.get_by_role("complementary", name="How this answer was made")
    expect(panel).to_contain_text("By meaning")
    expect(panel).to_contain_text(re.compile(r"Tokens\d+ in, \d+ out"))
    expect(panel.locator("code")).to_have_text(re.compile(r"^[0-9a-f]{32}$"))
    visited.check()
    panel.get_by_role("tab", name="Passages").click()
    expect(panel.get_by_role("tabpanel").locator("li")).to_have_count(5)
    expect(panel.locator(".scores dd").nth(1)).to_have_text(re.compile(r"0\.\d{3}"))
    visited.check()
    panel.get_by_role("tab", name="Prompt").click()
    expect(panel.get_by_role("tabpanel")).to_contain_text("Sources:")
    visited.check()
    panel.get_by_role("tab", name="Detections").click()
    expect(panel.get_by_role("tabpanel")).to_contain_text("No detector checked")
    visited.check()
    panel.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    visited.check()


def test_detections_are_listed(visit: Visit, corpus: str) -> None:
    """The panel lists a detection, and marks its text."""
    visited = visit()
    page = visited.open()
    found = {"start": 3, "end": 9, "text": "secret", "detection": "word", "detection_type": "list"}
    detections = {"output": [{"choice_index": 0, "results": [{**found, "detector_id": "regex", "score": 0.9}]}]}
    lines: list[dict[str, Any]] = [
        {"type": "response.context", "context": {"thoughts": []}},
        {"delta": "My secret."},
        {
            "context": {
                "thoughts": [{"title": "Answer", "description": "stop", "props": {}}],
                "detections": detections,
            }
        },
    ]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    page.route("**/chat/stream", lambda route: route.fulfill(body=body))
    ask(page)
    page.get_by_role("button", name="How this answer was made").click()
    page.get_by_role("tab", name="Detections").click()
    expect(page.get_by_role("tabpanel").locator("mark")).to_have_text("secret")
    visited.check()


def test_a_conversation_is_continued_edited_and_stored(visit: Visit, corpus: str) -> None:
    """A second question continues the conversation. An edited question replaces the turns from there on. The
    history lists the conversation.
    """
    visited = visit()
    page = visited.open()
    ask(page)
    ask(page, "How many leave days may be carried over?")
    expect(page.locator("article")).to_have_count(2)
    page.get_by_role("button", name="Edit the question").first.click()
    page.get_by_label("Question to ask instead").fill("Who is responsible for the bridge?")
    page.get_by_role("button", name="Ask", exact=True).first.click()
    expect(page.locator("article")).to_have_count(1)
    expect(page.locator("article .prose")).to_contain_text("Ottoline Crewe")
    wait_for_answer(page, 0)
    page.get_by_role("button", name="New").click()
    expect(page.locator("article")).to_have_count(0)
    page.get_by_role("button", name="History").click()
    expect(page.get_by_role("dialog").get_by_role("listitem").first).to_be_visible()
    visited.check()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Who is responsible")).first.click()
    expect(page.locator("article .prose")).to_contain_text("Ottoline Crewe")


def test_an_open_history_shows_a_newly_stored_conversation(visit: Visit, corpus: str) -> None:
    """If the user opens the history before a conversation is stored, the conversation appears there later without
    another click.
    """
    page = visit().open()
    requests: list[Route] = []
    page.route("**/chat_history", lambda route: requests.append(route), times=1)
    with page.expect_request("**/chat_history"):
        ask(page, "Who wrote the handbook of this bridge?")
    with page.expect_response("**/chat_history/sessions?*"):
        page.get_by_role("button", name="History").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name=re.compile("Who wrote"))).to_have_count(0)
    requests[0].continue_()
    expect(dialog.get_by_role("button", name=re.compile("Who wrote")).first).to_be_visible()


def test_a_broken_stream_keeps_its_text(visit: Visit, corpus: str) -> None:
    """After a broken stream, the page keeps the text and shows an error. The user can ask the question again."""
    page = visit().open()
    lines = [
        {"type": "response.context", "context": {"data_points": {"citations": []}, "thoughts": []}},
        {"type": "response.output_text.delta", "delta": "The bearing will be"},
    ]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    page.route("**/chat/stream", lambda route: route.fulfill(body=body), times=1)
    page.get_by_label("Question", exact=True).fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The connection broke before the answer was complete")
    expect(page.locator("article .prose")).to_have_text("The bearing will be")
    page.get_by_role("alert").get_by_role("button", name="Ask again").click()
    expect(page.locator("article .prose")).to_contain_text("4 January to 19 March 2027")


def test_a_stream_redraws_only_the_last_block(visit: Visit, corpus: str) -> None:
    """While 4 tokens arrive per frame, the page changes only the last block, at most once per frame. The end of the
    answer replaces no block.
    """
    page = visit().open()
    tokens = long_answer(20)
    page.evaluate(STREAM, {"tokens": tokens, "at_once": 4, "pace": 0, "known": ["a.md"]})
    page.evaluate(
        """() => {
          const counted = { frames: 0, text: 0, others: 0 }
          const frame = () => {
            counted.frames += 1
            requestAnimationFrame(frame)
          }
          requestAnimationFrame(frame)
          const all = { childList: true, subtree: true, characterData: true, attributes: true }
          new MutationObserver((found) => {
            if (!document.querySelector('.prose p + ul + p')) return
            if (document.querySelector('.answer[aria-busy=false]')) return
            window.first ??= document.querySelector('.prose p')
            counted.others += found.filter((each) => !each.target.parentElement?.closest('.prose, .answer')).length
            counted.text += 1
          }).observe(document.getElementById('root'), all)
          window.counted = counted
        }"""
    )
    ask(page)
    counted = page.evaluate("window.counted")
    assert 20 < counted["text"] <= counted["frames"]
    assert counted["others"] == 0
    assert page.evaluate("window.first === document.querySelector('.prose p')")
    expect(page.locator("article .prose > ul")).to_have_count(20)
    expect(page.locator("article .sources li")).to_have_count(1)


def test_markup_in_an_answer_is_shown_as_text(visit: Visit, corpus: str) -> None:
    """The page shows HTML, scripts and URLs of an answer as text, and does not run or load them."""
    visited = visit()
    page = visited.open()
    hostile = (
        "<img src=x onerror=alert(1)> ![p](https://evil.example/p.png) [x](javascript:alert(1)) <script>1</script>"
    )
    lines: list[dict[str, Any]] = [
        {"type": "response.context", "context": {"thoughts": []}},
        {"delta": hostile},
        {"context": {"thoughts": [{"title": "Answer", "description": "stop", "props": {}}]}},
    ]
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    page.route("**/chat/stream", lambda route: route.fulfill(body=body))
    ask(page)
    prose = page.locator("article .prose")
    expect(prose).to_contain_text("[picture: p]")
    assert prose.locator("img, script, a").count() == 0


def test_an_upload_of_twenty_files_with_a_broken_one(visit: Visit, platform: Platform) -> None:
    """Each file has its own state, and the broken file has an error message. Markup in a file name is shown as
    text. A failed file can be uploaded again.
    """
    visited = visit()
    page = visited.open("#/documents", key="ingest")
    names = [f"note {number}.txt" for number in range(18)] + ["<img src=x onerror=alert(1)>.txt"]
    files = [{"name": name, "mimeType": "text/plain", "buffer": f"Note of {name}.".encode()} for name in names]
    broken = {"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7 nothing"}
    page.get_by_label("Files to upload").set_input_files([*files, broken])
    expect(page.get_by_text("19 of 20 indexed, 1 failed")).to_be_visible(timeout=60_000)
    row = page.get_by_label("Uploads").get_by_role("listitem").filter(has_text="broken.pdf")
    expect(row).to_contain_text("failed")
    expect(row.locator(".reason")).not_to_be_empty()
    expect(page.get_by_label("Uploads")).to_contain_text("would fail in the same way")
    expect(page.get_by_label("Uploads")).to_contain_text("<img src=x onerror=alert(1)>.txt")
    visited.check()
    with page.expect_file_chooser() as chooser:
        row.get_by_role("button", name="Upload broken.pdf again").click()
    chooser.value.set_files({"name": "note.txt", "mimeType": "text/plain", "buffer": b"A readable note."})
    expect(page.get_by_text("20 of 20 indexed")).to_be_visible(timeout=30_000)
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("button", name="Upload broken.pdf again").click()
    dialog = page.get_by_role("dialog", name="Upload broken.pdf again")
    expect(dialog.get_by_label("File")).to_be_visible()
    visited.check()
    dialog.get_by_label("Users who may see the document").fill("ann")
    dialog.get_by_label("File").set_input_files(
        {"name": "mended.txt", "mimeType": "text/plain", "buffer": b"A mended note."}
    )
    dialog.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("cell", name="mended.txt")).to_be_visible()


def test_documents_are_pasted_searched_opened_and_deleted(visit: Visit, platform: Platform) -> None:
    """A user creates an index, adds, searches, opens and deletes documents, and deletes the index."""
    visited = visit()
    page = visited.open("#/documents")
    page.get_by_role("button", name="New index").click()
    page.get_by_label("Name", exact=True).fill("garden")
    visited.check()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="garden")).to_be_visible()
    page.get_by_role("button", name="Paste text").click()
    page.get_by_label("Title").fill("roses")
    page.get_by_label("Text, plain or Markdown").fill("# Roses\n\nRoses are cut in March.")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("1 of 1 indexed")).to_be_visible(timeout=30_000)
    page.get_by_label("Search the passages").fill("cut in March")
    expect(page.get_by_label("Passages found")).to_contain_text("Roses are cut in March.")
    page.get_by_label("Search the passages").fill("")
    page.get_by_role("link", name="Ask about these documents").click()
    expect(page.get_by_role("button", name="garden · hybrid")).to_be_visible()
    page.get_by_role("link", name="Documents").click()
    page.get_by_role("link", name=re.compile("garden")).click()
    page.get_by_role("button", name="roses.md").click()
    expect(page.get_by_role("dialog")).to_contain_text("Roses are cut in March.")
    passages = page.get_by_role("dialog").get_by_role("region", name="Passages")
    expect(passages.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("textbox", name=re.compile("^Users")).fill("ann, bob")
    visited.check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("The access list has changed.")
    expect(page.get_by_label("Access list")).to_contain_text("annbob")
    visited.check()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_role("link", name=re.compile("garden"))).to_contain_text("0 documents")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Delete the index", exact=True).click()
    page.keyboard.press("Escape")  # also withdraws the confirmation
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Delete the index", exact=True).click()
    page.get_by_role("button", name=re.compile("permanently")).click()
    expect(page.get_by_role("link", name=re.compile("garden"))).to_have_count(0)


def test_a_document_is_found_by_its_name_and_opened_from_a_passage(visit: Visit, corpus: str) -> None:
    """The list is sorted and filtered by name. A passage opens its document, also from another page of the list."""
    visited = visit()
    page = visited.open(f"#/documents/{corpus}")
    names = page.get_by_role("region", name="Documents").locator("td.name")
    expect(names.first).to_be_visible()
    listed = names.all_inner_texts()
    assert listed == sorted(listed, key=str.lower)
    page.get_by_label("Filter by name").fill("SAFETY")
    expect(names).to_have_text(["safety-manual.pdf"])
    expect(page.get_by_role("status").filter(has_text=f"1 of {len(listed)} documents")).to_be_visible()
    page.get_by_label("Search the passages").fill("pivot bearing")
    passage = page.get_by_label("Passages found").get_by_role("button").first
    expect(passage).to_be_visible()
    found = passage.inner_text().split("#")[0]
    passage.click()
    expect(page.get_by_role("dialog")).to_contain_text(found)
    page.route("**/documents?index=*", lambda route: route.fulfill(json={"documents": [], "next_page_token": None}))
    page.reload()
    page.get_by_label("Search the passages").fill("pivot bearing")
    page.get_by_label("Passages found").get_by_role("button").first.click()
    expect(page.get_by_role("dialog")).to_contain_text(found)
    expect(
        page.get_by_role("dialog").get_by_role("region", name="Passages").get_by_role("listitem").first
    ).to_be_visible()
    visited.check()


def test_jobs_and_the_lab(visit: Visit, corpus: str, tmp_path: Path) -> None:
    """The page of jobs filters them by state. The search lab compares two searches, and evaluates a file of
    questions.
    """
    visited = visit()
    page = visited.open("#/jobs")
    expect(page.get_by_role("cell", name="safety-manual.pdf").first).to_be_visible()
    expect(page.get_by_role("region", name="Lanes of the queue").get_by_role("listitem")).to_have_count(4)
    visited.check()
    page.get_by_role("button", name="Failed permanently").click()
    expect(page.get_by_role("heading", name="No job has failed permanently")).to_be_visible()
    page.get_by_role("link", name="Search lab").click()
    page.get_by_role("searchbox", name="Query").fill("pivot bearing")
    page.locator(".lab-form select").first.select_option("handbook")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_label("First settings").get_by_role("listitem")).to_have_count(10)
    expect(page.get_by_label("Second settings").get_by_role("listitem").first).to_contain_text("A: ")
    page.get_by_label("Mode of B").select_option("hybrid")
    page.get_by_label("Fusion of B").select_option("ranks")
    page.get_by_label("Weight of meaning of B").fill("0")
    page.get_by_label("Query expansion of B").select_option("false")
    second = page.get_by_label("Second settings").get_by_role("listitem")
    expect(second.first.locator("header")).to_contain_text("0.033 ·")
    page.get_by_role("button", name="B", exact=True).click()
    expect(page.get_by_label("Save the settings").locator("pre")).to_contain_text("dense_weight: 0")
    visited.check()
    page.get_by_label("Filter of B").fill("team=unknown")
    expect(page.get_by_label("Second settings")).to_contain_text("The search found no passages")
    page.get_by_label("Filter of B").fill("")
    expect(second.first).to_be_visible()
    questions = tmp_path / "questions.jsonl"
    line = {"question": QUESTION, "sourcepage": "brannoch-bridge-maintenance-plan.pdf#page=4"}
    questions.write_text(json.dumps(line))
    page.get_by_label("File of questions", exact=True).set_input_files(questions)
    expect(page.get_by_role("region", name="Measures").get_by_role("row").nth(1)).to_contain_text("1.000")
    expect(page.get_by_text("1 of 1 questions")).to_be_visible()


def test_a_key_signs_in_and_a_wrong_one_does_not(visit: Visit, platform: Platform) -> None:
    """The page requires a key, stores it only for the tab, and deletes it when the user signs out."""
    visited = visit()
    page = visited.open(key="")
    expect(page.get_by_label("API key")).to_be_visible()
    visited.check()
    page.get_by_label("API key").fill("ck_wrong")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("does not accept this credential")
    page.get_by_label("API key").fill(platform.keys["ask"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("navigation")).to_be_visible()
    assert page.context.cookies() == []
    assert platform.keys["ask"] not in page.evaluate("JSON.stringify(localStorage)")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert platform.keys["ask"] not in page.evaluate("JSON.stringify(sessionStorage)")


def test_a_user_signs_in_with_openid_connect(visit: Visit, platform: Platform) -> None:
    """The user signs in at the OpenID provider with the authorization code flow and PKCE. The code does not stay in
    the URL, and the user has the roles of the token.
    """
    page = visit().open(key="")
    page.get_by_role("button", name="Sign in with your organisation").click()
    expect(page.get_by_role("navigation")).to_be_visible()
    expect(page.locator(".who")).to_contain_text("ann")
    assert "code=" not in page.url
    expect(page.get_by_role("link", name="Jobs")).to_have_count(0)


def test_a_token_is_renewed_before_it_expires(visit: Visit, platform: Platform, corpus: str) -> None:
    """The page renews the token at the token endpoint, which has another origin, and then uses the new token. The
    input of the user is kept.
    """
    provider = platform.provider
    provider.seconds, before = 8, provider.renewed
    try:
        visited = visit()
        page = visited.open(key="")
        page.get_by_role("button", name="Sign in with your organisation").click()
        expect(page.get_by_role("navigation")).to_be_visible()
        page.get_by_label("Question", exact=True).fill("A draft")
        first = page.evaluate("sessionStorage.getItem('causeway.credential')")
        page.wait_for_function("first => sessionStorage.getItem('causeway.credential') !== first", arg=first)
        assert provider.renewed > before
        expect(page.get_by_label("Question", exact=True)).to_have_value("A draft")
        with page.expect_request("**/documents?*") as sent:
            page.get_by_role("link", name="Documents").click()
        assert sent.value.headers["authorization"] != f"Bearer {first}"
    finally:
        provider.seconds = 600


def test_a_user_sees_only_the_pages_of_the_role(visit: Visit, platform: Platform, corpus: str) -> None:
    """A user with only the role `ask` sees neither the jobs nor the upload, and the routes refuse both."""
    visited = visit()
    page = visited.open("#/jobs", key="ask")
    expect(page.get_by_role("heading", name="This page is not available")).to_be_visible()
    expect(page.get_by_role("link", name="Jobs")).to_have_count(0)
    page.get_by_role("link", name="Documents").click()
    expect(page.get_by_role("cell", name="safety-manual.pdf")).to_be_visible()
    expect(page.get_by_role("button", name="Choose files")).to_have_count(0)
    visited.check()
    with platform.client("ask") as http:
        assert http.get("/jobs").status_code == 403
        assert (
            http.post("/documents", data={"index": "handbook"}, files={"file": ("a.txt", b"a")}).status_code == 403
        )


@pytest.mark.parametrize(
    ("name", "content"),
    [("page.html", b"<script>document.title = 1</script>"), ("picture.svg", b"<svg onload='1'/>")],
    ids=["html", "svg"],
)
def test_an_uploaded_document_is_sandboxed(platform: Platform, name: str, content: bytes) -> None:
    """An opened document has its own origin and cannot access the console's storage."""
    with platform.client() as http:
        response = http.post("/documents", data={"index": "hostile"}, files={"file": (name, content)})
        with http.stream("GET", f"/jobs/{response.json()['jobs'][0]['id']}/events") as events:
            assert "event: end" in "".join(events.iter_text())
        sent = http.get(f"/content/{name}?index=hostile")
    if sent.status_code == 200:
        assert sent.headers["content-security-policy"].startswith("sandbox;")
        assert sent.headers["x-content-type-options"] == "nosniff"
    else:
        assert sent.status_code == 404  # the platform refused the file type at the upload


def test_the_first_load_is_small(visit: Visit, corpus: str) -> None:
    """The compressed size of all files that the page loads before the first question is below the limit."""
    visited = visit()
    page = visited.open()
    expect(page.get_by_label("Question", exact=True)).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert 50_000 < sum(visited.bytes.values()) <= MAX_BYTES, visited.bytes


@pytest.mark.parametrize("path", ["", "#/documents/handbook", "#/jobs", "#/lab"])
def test_pages_fit_a_narrow_screen(visit: Visit, corpus: str, path: str) -> None:
    """At 380 pixels no page is wider than the screen, and the keyboard reaches all pages."""
    visited = visit(width=380, height=720)
    page = visited.open(path)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    reached = set()
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent"))
    assert {"Documents", "Search lab", "Jobs"} <= reached
    visited.check()

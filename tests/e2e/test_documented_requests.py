"""The requests and programs of the pages in docs/ return what the pages describe."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = "http://127.0.0.1:8080"
# For each page: a text that the response to each of its requests contains, in the order of the page.
ANSWERS = {
    "console.md": ['"roles"'],
    "ingest.md": ['"jobs"', "event: end", '"document_id"', '"state"'],
    "mcp.md": ["leave-and-absence.md"],
    "page-pictures.md": ['"jobs"', "safety-manual.pdf#page="],
    "protocols.md": ["brannoch-bridge-maintenance-plan.pdf#page=4"],
    "reliability.md": ['"retriever"'],
    "responses.md": ["brannoch-bridge-maintenance-plan.pdf"],
    "retrieval.md": ['"dense_score"'],
}
Wait = Callable[[httpx.Client, str], dict[str, Any]]


def _blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def _commands(page: str) -> list[list[str]]:
    """Return the words of each `curl` command of a page that sends a request to the gateway."""
    shell = "".join(_blocks(page, "(?:ba)?sh")).replace("\\\n", " ")
    commands = [shlex.split(each) for each in re.split(r"^(?= *\w)", shell, flags=re.MULTILINE) if "curl " in each]
    return [words for words in commands if any(word.startswith(HOME) for word in words)]


def _send(http: httpx.Client, words: list[str], variables: dict[str, str]) -> httpx.Response:
    """Send the request of a `curl` command, and replace each `$NAME` by the value of the variable."""
    method, path, headers, body, form, files = "", "", {}, None, {}, []
    options = iter(words[1:])
    for option in options:
        if option.startswith(HOME):
            path = re.sub(r"\$(\w+)", lambda name: variables[name[1]], option.removeprefix(HOME))
        elif option == "-X":
            method = next(options)
        elif option == "-H":
            name, _, value = next(options).partition(": ")
            headers[name] = value
        elif option == "-d":
            body = next(options)
        elif option == "-F":
            name, _, value = next(options).partition("=")
            if value.startswith("@"):
                file = ROOT / value[1:]
                files.append((name, (file.name, file.read_bytes())))
            else:
                form[name] = value
        else:
            assert option in ("-N", "-i", "-s"), option
    method = method or ("GET" if body is None and not files else "POST")
    return http.request(method, path, headers=headers, content=body, data=form, files=files or None)


@pytest.mark.usefixtures("handbook")
@pytest.mark.parametrize(("page", "answers"), ANSWERS.items(), ids=ANSWERS)
def test_the_requests_of_a_page_succeed(http: httpx.Client, wait_for: Wait, page: str, answers: list[str]) -> None:
    """Each request of the page succeeds, and its response contains the text in `ANSWERS`."""
    commands = [words for words in _commands(page) if "docs.example.org" not in " ".join(words)]
    assert len(commands) == len(answers)
    variables: dict[str, str] = {}
    for words, answer in zip(commands, answers, strict=True):
        response = _send(http, words, variables)
        assert response.status_code < 300, (words, response.text)
        assert answer in response.text
        if "application/json" not in response.headers["content-type"]:
            continue
        found = response.json()
        for job in found.get("jobs", ()):
            variables["JOB"] = job["id"]
            assert wait_for(http, job["id"])["state"] in ("succeeded", "unchanged")
        for document in found.get("documents", ()):
            variables["ID"] = document["document_id"]


@pytest.mark.usefixtures("handbook")
def test_the_programs_for_the_rag_engine_run(base_url: str, api_key: str) -> None:
    """The programs of docs/ragengine.md store a document, and print an answer with its sources."""
    code = "\n".join(_blocks("ragengine.md", "python")).replace(HOME, base_url).replace("unused", api_key)
    printed = io.StringIO()
    variables: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(code, variables)
    variables["client"].close()
    variables["platform"].close()
    assert printed.getvalue().count("brannoch-bridge-maintenance-plan.pdf#page=4") >= 2


@pytest.mark.usefixtures("handbook")
def test_the_command_shows_the_steps_of_an_answer(base_url: str, api_key: str) -> None:
    """The first command of docs/observability.md prints the steps that the page shows."""
    command, expected = _blocks("observability.md", "(?:sh)?")[:2]
    _, *words = shlex.split(command)
    printed = subprocess.run(
        [Path(sys.executable).with_name("causeway"), *words, "--url", base_url, "--api-key", api_key],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    names = re.findall(r"^ +(\D+?) +[\d.]+ ms$", expected, re.MULTILINE)
    assert len(names) > 5
    assert [name for name in names if not re.search(rf"^ +{name} +[\d.]+ ms$", printed, re.MULTILINE)] == []


@pytest.fixture
def front_ends(
    start_stack: Callable[..., AbstractContextManager[str]], wait_for: Wait, tmp_path: Path
) -> Iterator[httpx.Client]:
    """Start a stack with the profiles of examples/frontends.yaml, and ingest a document into their index."""
    document = ROOT / "examples" / "corpus" / "leave-and-absence.md"
    with (
        start_stack(tmp_path, CAUSEWAY_FRONTENDS_FILE=str(ROOT / "examples" / "frontends.yaml")) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        file = {"file": (document.name, document.read_bytes())}
        [job] = http.post("/documents", data={"index": "handbook"}, files=file).raise_for_status().json()["jobs"]
        assert wait_for(http, job["id"])["state"] == "succeeded"
        yield http


def test_the_requests_to_front_ends_are_answered(front_ends: httpx.Client) -> None:
    """The requests of docs/frontends.md work: questions to the mount and to the host name, a document, and an
    upload.
    """
    by_mount, by_host, content, upload = [_send(front_ends, words, {}) for words in _commands("frontends.md")]
    pieces = [json.loads(line).get("delta") for line in by_mount.text.splitlines()]
    text = "Up to six days may be carried over into the next leave year"
    assert text in "".join(piece for piece in pieces if isinstance(piece, str))
    assert text in by_host.text
    assert "carried over" in content.text
    assert upload.status_code == 200

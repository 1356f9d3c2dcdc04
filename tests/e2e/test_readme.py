import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
HOME = "http://127.0.0.1:8080"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("handbook")
def test_the_questions_with_curl_are_answered(http: httpx.Client) -> None:
    """Each request of the README gets an answer with sources."""
    shell = "\n".join(text for language, text in BLOCKS if language == "sh")
    requests = re.findall(rf"curl -N {HOME}(/\S+) .*?-d '(.*?)'", shell, re.DOTALL)
    assert len(requests) >= 2
    for path, body in requests:
        response = http.post(path, json=json.loads(body))
        assert response.status_code == 200, (path, response.text)
        assert "handbook" in body
        assert ".md" in response.text or ".pdf" in response.text
        assert ("[REDACTED]" in response.text) == ("detectors" in body)


@pytest.mark.usefixtures("handbook")
def test_the_requests_of_the_guardrails_page_succeed(http: httpx.Client) -> None:
    """Each request of docs/guardrails.md succeeds, and its answer begins with the text that the page shows."""
    page = (ROOT / "docs/guardrails.md").read_text()
    shown = re.findall(
        r"^curl (?:-N )?localhost:8080(/\S+) -H 'content-type: (\S+)'"
        r"(?:[\s\\]+-d '(.*?)'| -X POST -T - <<'END'\n(.*?)^END)\n(?:# (.*?)…)?",
        page,
        re.MULTILINE | re.DOTALL,
    )
    assert len(shown) >= 3
    for path, kind, body, lines, answer in shown:
        response = http.post(path, content=body or lines, headers={"content-type": kind})
        assert response.status_code == 200, (path, response.text)
        assert response.text.startswith(answer)
        assert "error" not in response.text


def test_the_upload_with_curl_is_accepted(http: httpx.Client) -> None:
    """The file of the upload in the README exists, and the gateway accepts it."""
    [(index, file, path)] = re.findall(rf"-F index=(\S+) -F file=@(\S+) {HOME}(\S+)", README)
    content = (ROOT / file).read_bytes()
    response = http.post(path, data={"index": index}, files={"file": (Path(file).name, content)})
    assert response.status_code == 202


@pytest.mark.usefixtures("handbook")
def test_the_python_example_runs(base_url: str, api_key: str) -> None:
    """The example prints the answer and the names of the sources."""
    [code] = [text for language, text in BLOCKS if language == "python"]
    printed = io.StringIO()
    variables: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(code.replace(HOME, base_url).replace("unused", api_key), variables)
    variables["client"].close()
    assert "six days" in printed.getvalue()
    assert "leave-and-absence.md" in printed.getvalue()

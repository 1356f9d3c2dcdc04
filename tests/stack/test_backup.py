"""The commands of docs/backup.md back up a running stack and restore the backup into an empty directory."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(600)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backup.md"
PROFILES = """
frontends:
  - {name: help, mount: help, index: tides}
"""
UPLOADS = 12


async def causeway(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run `causeway` with arguments, and return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("causeway")),
        *arguments,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def commands() -> list[list[str]]:
    """Return the commands of the first example in docs/backup.md."""
    [block, *_] = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True) for line in block.splitlines() if line]


async def key_of(tmp_path: Path, name: str, *arguments: str) -> str:
    code, out = await causeway("keys", "create", "--name", name, "--json", *arguments, cwd=tmp_path)
    assert code == 0, out
    return str(json.loads(out)["key"])


async def visible_data(url: str, keys: dict[str, str]) -> dict[str, Any]:
    """Return the status and the body of each route for each key: documents with their texts, an original, a
    conversation, and the settings of a profile.
    """
    paths = {
        "documents": "/indexes/tides/documents?limit=50&max_text_length=20000",
        "original": "/content/secret.md?index=tides",
        "conversation": "/chat_history/sessions/s1",
        "profile": "/help/config",
        "original, by the profile": "/help/content/open.md",
    }
    found: dict[str, Any] = {}
    for name, key in keys.items():
        async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
            for route, path in paths.items():
                response = await http.get(path)
                body: Any = response.text if response.status_code == 200 else ""
                if route == "documents" and body:
                    body = response.json()["documents"]
                found[f"{route} of {name}"] = response.status_code, body
    return found


async def test_a_backup_of_a_running_stack_is_restored(start_stack: Any, tmp_path: Path) -> None:
    """A restore recovers documents, access lists, keys, profiles and conversations. A document that is uploaded
    during the backup is complete or absent. The restore refuses a directory that is not empty.
    """
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    environment = {
        "CAUSEWAY_AUTH": "keys",
        "CAUSEWAY_FRONTENDS_FILE": str(tmp_path / "frontends.yaml"),
    }
    backup_command, restore_command, start_command = commands()
    assert (backup_command[1], restore_command[1], start_command[1]) == ("backup", "restore", "up")
    async with start_stack(tmp_path / ".data", **environment) as stack:
        roles = ("--roles", "ask,ingest")
        keys = {
            "admin": await key_of(tmp_path, "boss", "--roles", "admin"),
            "ann": await key_of(tmp_path, "ann", *roles),
            "bob": await key_of(tmp_path, "bob", *roles, "--profile", "help"),
        }
        stack.http.headers["authorization"] = f"Bearer {keys['admin']}"
        assert (await stack.ingest("tides", "open.md", b"# Open\n\nHigh water is at six.\n"))[
            "state"
        ] == "succeeded"
        secret = await stack.http.post(
            "/documents",
            data={"index": "tides", "oids": "ann"},
            files={"file": ("secret.md", b"# Secret\n\nLow water is at noon.\n")},
        )
        assert (await stack.wait_for_job(secret.raise_for_status().json()["jobs"][0]["id"]))["state"] == "succeeded"
        saved = await stack.http.post(
            "/chat_history",
            json={"id": "s1", "answers": [["When?", {"message": {"content": "At six."}}]]},
            headers={"authorization": f"Bearer {keys['ann']}"},
        )
        assert saved.status_code == 201, saved.text
        url = str(stack.http.base_url)
        before = await visible_data(url, keys)

        async def upload(number: int) -> str:
            files = {"file": (f"late{number}.md", f"# Late\n\nBoat {number} comes late.\n".encode())}
            response = await stack.http.post("/documents", data={"index": "tides"}, files=files)
            job: str = response.raise_for_status().json()["jobs"][0]["id"]
            return job

        async def uploads() -> list[str]:
            return [await upload(number) for number in range(UPLOADS)]

        jobs, (code, out) = await asyncio.gather(uploads(), causeway(*backup_command[1:], cwd=tmp_path))
        assert code == 0, out
        for job in jobs:
            assert (await stack.wait_for_job(job))["state"] == "succeeded"
        code, out = await causeway("restore", backup_command[2], cwd=tmp_path)
        assert code == 1
        assert "not empty" in out
        assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []
    code, out = await causeway(*restore_command[1:], cwd=tmp_path)
    assert code == 0, out
    code, out = await causeway(*restore_command[1:], cwd=tmp_path)
    assert (code, "not empty" in out) == (1, True)
    async with start_stack(tmp_path / restore_command[-1], **environment) as stack:
        stack.http.headers["authorization"] = f"Bearer {keys['admin']}"
        late = []
        for number, job in enumerate(jobs):
            if (await stack.http.get(f"/jobs/{job}")).status_code == 200:
                assert (await stack.wait_for_job(job))["state"] in ("succeeded", "unchanged")
                late.append(number)
        for number in range(UPLOADS):
            name = f"late{number}.md"
            original = await stack.http.get(f"/content/{name}", params={"index": "tides"})
            assert (original.status_code == 200) == (number in late), name
            if number in late:
                assert original.content == f"# Late\n\nBoat {number} comes late.\n".encode()
        after = await visible_data(str(stack.http.base_url), keys)
        for route, (status, body) in after.items():
            if route.startswith("documents") and body:
                after[route] = status, [each for each in body if "comes late" not in each["text"]]
        assert after == before
        assert (await stack.ingest("tides", "new.md", b"# New\n\nIt goes on.\n"))["state"] == "succeeded"
    readable = {route for route, (status, _) in before.items() if status == 200}
    assert readable >= {"original of ann", "conversation of ann", "documents of ann", "profile of bob"}
    assert not readable & {"original of bob", "documents of bob", "conversation of admin"}

"""This version can use the data directories of earlier versions (docs/upgrade.md)."""

import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(300)

ARCHIVES = Path(__file__).with_name("upgrade")
PROFILES = "frontends:\n  - {name: help, mount: help, index: handbook}\n"
BRIDGE = b"# Bridge\n\nThe pivot bearing is renewed in March.\n\n## Tides\n\nHigh water at Kelsay is at six.\n"


def unpack(version: str, data: Path) -> dict[str, str]:
    """Unpack the archive of a version, and return the ids or keys that `upgrade/make.py` stored in it."""
    with tarfile.open(ARCHIVES / f"{version}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    stored: dict[str, str] = json.loads((data / "told.json").read_text())
    return stored


async def answer_to(
    http: httpx.AsyncClient, question: str, path: str = "/chat", **overrides: Any
) -> tuple[str, Any]:
    """Return the answer to a question, and its citations."""
    body = {"messages": [{"role": "user", "content": question}], "context": {"overrides": overrides}}
    answer = (await http.post(path, json=body)).raise_for_status().json()
    return answer["message"]["content"], answer["context"]["data_points"]["citations"]


async def test_data_of_the_first_version(start_stack: Any, tmp_path: Path) -> None:
    """Documents of the first version can be searched, a waiting job succeeds, and the index can be changed and
    rebuilt. An original cannot be opened until the next upload, because that version did not record its location.
    """
    data = tmp_path / "data"
    stored = unpack("first", data)
    async with start_stack(data) as stack:
        assert (await stack.wait_for_job(stored["waiting"]))["state"] == "succeeded"
        assert (await stack.wait_for_job(stored["done"]))["state"] == "succeeded"
        bearing = ("The pivot bearing is renewed in March. [bridge.md]", ["bridge.md"])
        ask = "When will the pivot bearing be renewed?"
        assert await answer_to(stack.http, ask, index="handbook", top=1) == bearing
        ferry = await answer_to(stack.http, "When does the ferry leave?", index="handbook", top=1)
        assert ferry == ("The ferry leaves at nine. [ferry.md]", ["ferry.md"])
        shown = (await stack.http.get("/indexes/handbook")).json()
        assert (shown["documents"], shown["chunks"], shown["language"]) == (2, 3, "legacy")
        listed = (await stack.http.get("/indexes/handbook/documents")).json()["documents"]
        [bridge] = [each for each in listed if "pivot" in each["text"]]
        assert bridge["text"].endswith("High water at Kelsay is at six.")
        content = "/content/bridge.md?index=handbook"
        assert (await stack.http.get(content)).status_code == 404
        assert (await stack.ingest("handbook", "bridge.md", BRIDGE))["state"] == "succeeded"
        assert (await stack.http.get(content)).content == BRIDGE
        assert (await stack.ingest("handbook", "bridge.md", BRIDGE))["state"] == "unchanged"
        rebuilt = await stack.http.post("/indexes/handbook/rebuild", json={})
        assert rebuilt.status_code in (200, 202), rebuilt.text
        assert await answer_to(stack.http, ask, index="handbook", top=1) == bearing
        assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []


async def test_keys_access_lists_profiles_and_conversations_are_kept(start_stack: Any, tmp_path: Path) -> None:
    """Each key keeps its access rights, and the conversation of its user can be read."""
    data = tmp_path / "data"
    keys = unpack("keys", data)
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    environment = {"CAUSEWAY_AUTH": "keys", "CAUSEWAY_FRONTENDS_FILE": str(tmp_path / "frontends.yaml")}
    async with start_stack(data, **environment) as stack:

        async def get(name: str, path: str) -> tuple[int, str]:
            response = await stack.http.get(path, headers={"authorization": f"Bearer {keys[name]}"})
            return response.status_code, response.text

        assert (await get("boss", "/content/bridge.md?index=handbook"))[0] == 200
        assert await get("ann", "/content/secret.md?index=handbook") == (
            200,
            "# Secret\n\nThe code of the lock is known to Ann.\n",
        )
        assert (await get("bob", "/help/content/bridge.md"))[0] == 200
        assert (await get("bob", "/help/content/secret.md"))[0] == 404
        assert (await get("bob", "/content/bridge.md?index=handbook"))[0] == 403
        status, conversation = await get("ann", "/chat_history/sessions/s1")
        assert (status, json.loads(conversation)["answers"]) == (
            200,
            [["When?", {"message": {"content": "At six."}}]],
        )
        assert (await get("boss", "/chat_history/sessions/s1"))[0] == 404
        stack.http.headers["authorization"] = f"Bearer {keys['bob']}"
        answer, cited = await answer_to(stack.http, "When will the pivot bearing be renewed?", "/help/chat")
        assert (answer, cited) == ("The pivot bearing is renewed in March. [bridge.md]", ["bridge.md"])
        stack.http.headers["authorization"] = f"Bearer {keys['ann']}"
        assert (await stack.ingest("handbook", "ferry.md", b"The ferry leaves at nine.\n"))["state"] == "succeeded"

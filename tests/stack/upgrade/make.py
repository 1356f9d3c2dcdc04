"""Create the data directories of earlier versions that `test_upgrade.py` opens.

    git archive d7c68f0 | tar x -C /tmp/first && make -C /tmp/first setup
    python tests/stack/upgrade/make.py first /tmp/first

Each archive contains the data directory that `causeway up` of the version wrote, without logs and configuration.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import nats
from nats.js import JetStreamContext

VERSIONS = {
    "first": "d7c68f0",  # the last version before front end profiles, keys and histories
    "keys": "cd6aaaa",  # the last version before the modules of the services were grouped
}
BRIDGE = b"# Bridge\n\nThe pivot bearing is renewed in March.\n\n## Tides\n\nHigh water at Kelsay is at six.\n"
SECRET = b"# Secret\n\nThe code of the lock is known to Ann.\n"
FERRY = b"# Ferry\n\nThe ferry leaves at nine.\n"
PROFILES = "frontends:\n  - {name: help, mount: help, index: handbook}\n"
_EXCLUDED = {"nats.conf", "stack.json", "stack.lock", "LOCK"}


@contextlib.asynccontextmanager
async def _run_stack(causeway: Path, data: Path, environment: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """Run the stack of the version. Kill it at the end, to simulate a crash."""
    process = await asyncio.create_subprocess_exec(
        causeway, "up", "--port", "0", "--data-dir", data, env=os.environ | environment
    )
    try:
        while not (data / "stack.json").exists():  # noqa: ASYNC110  # there is no event for a new file
            await asyncio.sleep(0.1)
        url = json.loads((data / "stack.json").read_text())["url"]
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            yield http
    finally:
        process.kill()
        await process.wait()
        await asyncio.sleep(3)  # its services end after it


async def _upload(http: httpx.AsyncClient, name: str, content: bytes, **fields: str) -> str:
    response = await http.post("/documents", data={"index": "handbook"} | fields, files={"file": (name, content)})
    job: str = response.raise_for_status().json()["jobs"][0]["id"]
    return job


async def _wait_for(http: httpx.AsyncClient, job: str) -> None:
    while (await http.get(f"/jobs/{job}")).json()["state"] != "succeeded":  # noqa: ASYNC110  # the job is polled
        await asyncio.sleep(0.1)


async def _disable_expiry(jetstream: JetStreamContext, stream: str) -> None:
    """Remove the maximum age of a stream's messages."""
    config = (await jetstream.stream_info(stream)).config
    config.max_age = 0
    await jetstream.update_stream(config)


async def _first(causeway: Path, data: Path) -> dict[str, Any]:
    """Create a document and a waiting job."""
    async with _run_stack(causeway, data, {}) as http:
        stack = json.loads((data / "stack.json").read_text())
        # The states of jobs expire after 30 days, and the tests must read them for years.
        client = await nats.connect(stack["nats_url"])
        await _disable_expiry(client.jetstream(), "KV_causeway-jobs")
        await client.close()
        done = await _upload(http, "bridge.md", BRIDGE)
        await _wait_for(http, done)
        os.kill(stack["services"]["ingest"]["pid"], signal.SIGSTOP)
        return {"done": done, "waiting": await _upload(http, "ferry.md", FERRY)}


async def _keys(causeway: Path, data: Path) -> dict[str, Any]:
    """Create two documents, one of which only Ann may see, a conversation, and keys, one of which has a profile."""
    keys: dict[str, Any] = {}
    profiles = data.with_suffix(".yaml")
    profiles.write_text(PROFILES)
    environment = {
        "CAUSEWAY_AUTH": "keys",
        "CAUSEWAY_FRONTENDS_FILE": str(profiles),
        "CAUSEWAY_HISTORY_DAYS": "36500",  # the tests read the archive for years
    }
    async with _run_stack(causeway, data, environment) as http:
        for name, options in {"boss": "admin", "ann": "ask,ingest", "bob": "ask,ingest --profile help"}.items():
            command = f"keys create --data-dir {data} --name {name} --json --roles {options}"
            process = await asyncio.create_subprocess_exec(
                causeway, *command.split(), stdout=asyncio.subprocess.PIPE
            )
            keys[name] = json.loads((await process.communicate())[0])["key"]
        http.headers["authorization"] = f"Bearer {keys['boss']}"
        await _wait_for(http, await _upload(http, "bridge.md", BRIDGE))
        await _wait_for(http, await _upload(http, "secret.md", SECRET, oids="ann"))
        conversation = {"id": "s1", "answers": [["When?", {"message": {"content": "At six."}}]]}
        saved = await http.post(
            "/chat_history", json=conversation, headers={"authorization": f"Bearer {keys['ann']}"}
        )
        saved.raise_for_status()
    return keys


def _filter(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = member.name.split("/")
    if parts[-1] in _EXCLUDED or "logs" in parts or not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Write one archive beside this file."""
    name, checkout = sys.argv[1], Path(sys.argv[2])
    causeway = checkout / ".venv" / "bin" / "causeway"
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "data"
        data.mkdir()
        stored = asyncio.run({"first": _first, "keys": _keys}[name](causeway, data))
        (data / "told.json").write_text(json.dumps(stored))
        with tarfile.open(Path(__file__).with_name(f"{name}.tar.xz"), "w:xz") as archive:
            archive.add(data, ".", filter=_filter)


if __name__ == "__main__":
    main()

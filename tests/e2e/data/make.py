"""Creates an archive of a data directory with an earlier version of the platform.

Usage: python make.py CHECKOUT ARCHIVE

CHECKOUT is a checkout of that version in which `make setup` has run. The script starts its `causeway up`, fills it
through the public HTTP API and `causeway keys`, stops it, and packs the data directory. Beside ``ARCHIVE.tar.xz``
it writes ``ARCHIVE.json``: the keys, and the data that a later version must find. It requires httpx and GNU tar.
"""

import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

SETTINGS = {"CAUSEWAY_AUTH": "keys", "CAUSEWAY_DEFAULT_INDEX": "harbour", "CAUSEWAY_HISTORY_DAYS": "36500"}
HARBOUR = {
    "tides.md": "# Tides\n\nHigh water at Kelsay is at six in the morning.\n",
    "berths.html": "<html><body><h1>Berths</h1><p>Berth 7 is nine metres deep.</p></body></html>",
    "fees.csv": "vessel,fee\nDinghy,12 crowns\nYacht,30 crowns\n",
}
NOTES = [
    {"doc_id": "ferry", "text": "The ferry leaves at nine.", "metadata": {"topic": "boats"}},
    {"doc_id": "cats", "text": "The lighthouse keeper feeds eleven cats.", "metadata": {"topic": "animals"}},
]
UPLOAD = ("wombats.txt", "The wombat of the harbour master sleeps at noon.")
QUEUED = {
    "buoys.md": "# Buoys\n\nBuoy 4 flashes every six seconds.\n",
    "cranes.md": "# Cranes\n\nCrane 2 lifts 40 tonnes.\n",
}
ANSWERS = [["When is high water?", {"message": {"content": "At six in the morning."}, "session_state": "talk"}]]
TIMEOUT_SECONDS = 120.0


def create_key(causeway: Path, data: Path, *options: str) -> dict[str, Any]:
    """Create an API key, and return it with its record."""
    command: list[str | Path] = [causeway, "keys", "create", "--json", "--data-dir", data, *options]
    created: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return created


def submit(http: httpx.Client, index: str, files: dict[str, str]) -> list[str]:
    """Upload files and return the ids of their jobs."""
    parts = [("file", (name, text.encode())) for name, text in files.items()]
    response = http.post("/documents", data={"index": index}, files=parts).raise_for_status()
    return [job["id"] for job in response.json()["jobs"]]


def finish(http: httpx.Client, jobs: list[str]) -> None:
    """Wait until jobs have succeeded."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while {http.get(f"/jobs/{job}").raise_for_status().json()["state"] for job in jobs} != {"succeeded"}:
        if time.monotonic() > end:
            raise TimeoutError("the jobs did not succeed")
        time.sleep(0.2)


def fill(http: httpx.Client, causeway: Path, data: Path) -> dict[str, Any]:
    """Store data of each kind, and return the data that a later version must find."""
    keys = {
        "admin": create_key(causeway, data, "--name", "ann", "--roles", "admin"),
        "ask": create_key(causeway, data, "--name", "bob", "--roles", "ask"),
        "north": create_key(causeway, data, "--name", "nora", "--roles", "admin", "--tenant", "north"),
        "revoked": create_key(causeway, data, "--name", "rex", "--roles", "ask"),
    }
    subprocess.run([causeway, "keys", "revoke", keys["revoked"]["id"], "--data-dir", data], check=True)
    http.headers["api-key"] = keys["admin"]["key"]
    end = time.monotonic() + TIMEOUT_SECONDS
    # The gateway reads new keys after a short time.
    while http.get("/indexes").status_code == 401 and time.monotonic() < end:
        time.sleep(0.1)
    finish(http, submit(http, "harbour", HARBOUR))
    http.post("/index", json={"index_name": "notes", "documents": NOTES}).raise_for_status()
    name, text = UPLOAD
    http.post("/upload", files={"file": (name, text.encode())}).raise_for_status()
    http.post("/chat_history", json={"id": "talk", "answers": ANSWERS}).raise_for_status()
    http.post("/2024-04/chat", json={"messages": "When is high water at Kelsay?"}).raise_for_status()
    http.post("/persist/notes", params={"path": "before"}).raise_for_status()
    # A suspended worker starts no jobs, so that these jobs wait for the version that opens the directory.
    ingest = json.loads((data / "stack.json").read_text())["services"]["ingest"]["pid"]
    os.kill(ingest, signal.SIGSTOP)
    jobs = submit(http, "harbour", QUEUED)
    states = [http.get(f"/jobs/{job}").raise_for_status().json()["state"] for job in jobs]
    if states != ["queued", "queued"]:
        raise RuntimeError(f"the jobs are {states}, not queued")
    return {
        "keys": keys,
        "settings": SETTINGS,
        "history": {"talk": ANSWERS},
        "harbour": HARBOUR,
        "notes": NOTES,
        "upload": UPLOAD,
        "queued": QUEUED,
        "jobs": jobs,
        "snapshot": "before",
    }


def main(checkout: Path, archive: Path) -> None:
    """Run the platform of a checkout, fill it, stop it, and pack its data directory."""
    causeway = checkout / ".venv" / "bin" / "causeway"
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        command: list[str | Path] = [causeway, "up", "--port", "0", "--data-dir", data]
        with subprocess.Popen(command, env={**os.environ, **SETTINGS}, cwd=folder) as platform:
            try:
                end = time.monotonic() + TIMEOUT_SECONDS
                while not (data / "stack.json").exists():
                    if platform.poll() is not None or time.monotonic() > end:
                        raise RuntimeError("the platform did not start")
                    time.sleep(0.1)
                url = json.loads((data / "stack.json").read_text())["url"]
                with httpx.Client(base_url=url, timeout=60) as http:
                    expected = fill(http, causeway, data)
            finally:
                with suppress(ProcessLookupError):
                    platform.send_signal(signal.SIGTERM)
        # The files of an index are sparse, and GNU tar can keep them sparse.
        folders = sorted(path.name for path in data.iterdir() if path.is_dir() and path.name != "logs")
        pack: list[str | Path] = [
            "tar",
            "--create",
            "--sparse",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--directory",
            data,
        ]
        packed = subprocess.run([*pack, *folders], capture_output=True, check=True).stdout
        Path(f"{archive}.tar.xz").write_bytes(lzma.compress(packed, preset=9))
    Path(f"{archive}.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
